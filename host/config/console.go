package config

// Console says whether the node serves the web console.
type Console string

// The values of Config.Console.
const (
	ConsoleAuto Console = "auto" // where strangers cannot use it
	ConsoleOn   Console = "on"
	ConsoleOff  Console = "off"
)

// ServesConsole reports whether the web console is served. Its pages can do no
// more than their caller; auto shows them to nobody who need not say who he is
// and is not on this machine.
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
		fault("console", "is %q, must be %s, %s or %s", c.Console, ConsoleAuto, ConsoleOn, ConsoleOff)
	}
}
