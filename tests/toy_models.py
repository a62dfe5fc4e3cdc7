"""What toys of diffusion models share: noises of their seeds, and what nothing depends on."""


class ToyModel:
    """A model of Stable Diffusion's kind; ``name``, ``digest`` and ``shape`` are its own."""

    family = "sd"
    prediction = "epsilon"
    device = "cpu"
    precision = "fp32"

    def about(self):
        names = ("name", "family", "device", "precision")
        return {name: getattr(self, name) for name in names} | {"shape": list(self.shape)}

    def first_timestep(self, steps):
        return 981.0

    def noises(self, seeds):
        import torch

        rows = [torch.randn(self.shape, generator=torch.Generator().manual_seed(s)) for s in seeds]
        return torch.stack(rows)
