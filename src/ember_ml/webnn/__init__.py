"""The W3C Web Neural Network interface, snake_case, over ember_ml graphs."""
