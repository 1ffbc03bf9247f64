package config

// checkModules refuses what looks as if signatures were asked for when none can
// count.
func (c *Config) checkModules(fault func(key, format string, args ...any)) {
	switch c.ModuleSignatures {
	case SignaturesOff:
	case SignaturesWarn, SignaturesRequire:
		if c.ModuleTrustFile == "" {
			fault("module-signatures", "is %s, but nothing says whose signatures count: give module-trust-file", c.ModuleSignatures)
		}
	default:
		fault("module-signatures", "is %q, must be %s, %s or %s", c.ModuleSignatures, SignaturesOff, SignaturesWarn, SignaturesRequire)
	}
}
