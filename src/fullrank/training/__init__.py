"""Training: collection of transitions, sampling, learner computation, and optimiser steps."""
