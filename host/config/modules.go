package config

// checkModules rejects configurations that check signatures without a trusted key.
func (c *Config) checkModules(fault func(key, format string, args ...any)) {
	switch c.ModuleSignatures {
	case SignaturesOff:
	case SignaturesWarn, SignaturesRequire:
		if c.ModuleTrustFile == "" {
			fault("module-signatures", "%s needs trusted keys: set module-trust-file", c.ModuleSignatures)
		}
	default:
		fault("module-signatures", "must be %s, %s or %s, got %q", SignaturesOff, SignaturesWarn, SignaturesRequire, c.ModuleSignatures)
	}
}
