from danaus.model.config import LlamaConfig as LlamaConfig
from danaus.model.initial import initial_value as initial_value
from danaus.model.llama import Llama as Llama
