"""Research forks of PEFT with several pairs on one module: HydraLoRA, LoRAMoE, O-LoRA."""
