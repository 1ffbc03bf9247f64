package config

// Console says whether the node serves the web console.
type Console string

// The values of Config.Console.
const (
	ConsoleAuto Console = "auto" // on if strangers cannot use it
	ConsoleOn   Console = "on"
	ConsoleOff  Console = "off"
)

// ServesConsole reports whether the node serves the web console. The console has
// no more rights than its caller. auto serves it only if every caller is on this
// machine or has to authenticate.
func (c *Config) ServesConsole() bool {
	switch c.Console {
	case ConsoleOn:
		return true
	case ConsoleOff:
		return false
	}
	return c.Loopback() || c.Auth == AuthRequired
}

func (c *Config) checkConsole(fault func(key, format string, args ...any)) {
	switch c.Console {
	case ConsoleAuto, ConsoleOn, ConsoleOff:
	default:
		fault("console", "must be %s, %s or %s, got %q", ConsoleAuto, ConsoleOn, ConsoleOff, c.Console)
	}
}
