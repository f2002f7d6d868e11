"""Names for what can be made: models, configs, processors, and one's own.

>>> from ember_ml import registry
>>> registry.create("models/mlp", in_features=4, hidden=(8,), out_features=2).num_parameters()
58
"""

from ember_ml.registry.configs import Config, on
from ember_ml.registry.listing import Entry, Listing
from ember_ml.registry.names import Registry
from ember_ml.registry.own import default

__all__ = [
    "Config",
    "Entry",
    "Listing",
    "Registry",
    "create",
    "default",
    "from_dict",
    "get",
    "listing",
    "load",
    "name_of",
    "names",
    "on",
    "register",
    "save",
    "to_dict",
]

# The registry that all of a program shares.
register = default.register
get = default.get
create = default.create
names = default.names
name_of = default.name_of
listing = default.listing
to_dict = default.to_dict
from_dict = default.from_dict
save = default.save
load = default.load
