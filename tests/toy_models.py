"""What toys of diffusion models share: noises of their seeds, and what nothing depends on."""


class ToyModel:
    """A model of Stable Diffusion's kind that notes its calls; Ctrl-C comes after ``most`` rows."""

    family = "sd"
    prediction = "epsilon"
    device = "cpu"
    precision = "fp32"

    def __init__(self, most=None):
        self.rows, self.most = 0, most
        self.batches, self.timesteps = [], []

    def count(self, conditioning, timestep):
        """Count a call of the network."""
        self.batches.append(len(conditioning))
        self.timesteps.append(timestep)
        self.rows += len(conditioning)
        if self.most is not None and self.rows > self.most:
            raise KeyboardInterrupt

    def about(self):
        names = ("name", "family", "device", "precision")
        return {name: getattr(self, name) for name in names} | {"shape": list(self.shape)}

    def first_timestep(self, steps):
        return 981.0

    def noises(self, seeds):
        import torch

        rows = [torch.randn(self.shape, generator=torch.Generator().manual_seed(s)) for s in seeds]
        return torch.stack(rows)
