"""The models by name. Their code needs torch, so it is imported at its first use."""

from __future__ import annotations

from hiflash.core.registry import Part, by_name

__all__ = ["MODELS"]

MODELS = by_name(
    Part("lenet", "the paper's LeNet for 28x28 images: 21,840 parameters", "hiflash.train.models:make_lenet"),
    Part(
        "femnist_cnn",
        "a CNN for 28x28 images with the paper's 214,590 parameters",
        "hiflash.train.models:make_femnist_cnn",
    ),
    Part(
        "cnn",
        "a small CNN for images, 65,962 parameters at 3x32x32: for CIFAR-10 on a CPU, compiled",
        "hiflash.train.models:make_cnn",
    ),
    Part(
        "resnet",
        "the paper's residual network for 32x32 images: 3,504,554 parameters",
        "hiflash.train.models:make_resnet",
    ),
    Part(
        "resnet18",
        "the usual ResNet-18 for 32x32 images: 11,173,962 parameters",
        "hiflash.train.models:make_resnet18",
    ),
    Part(
        "mlp",
        "two hidden layers (64, 32) for tables: 4,898 parameters for flights",
        "hiflash.train.models:make_mlp",
    ),
    Part(
        "char_lstm",
        "an LSTM of width 64 for token ids: 24,784 parameters for 80 symbols",
        "hiflash.train.models:make_char_lstm",
    ),
)
