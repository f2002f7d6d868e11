"""`ember launch`: processes started, watched, and started again."""
