"""What memory there is: the GPU catalog, device configuration, telemetry and the doctor."""
