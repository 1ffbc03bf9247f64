package config_test

import (
	"testing"

	"github.com/hostd/hostd/host/config"
)

// TestConsoleAutoNeedsAuthentication: with auto, a node serves the console if every
// caller is on this machine or has to authenticate.
func TestConsoleAutoNeedsAuthentication(t *testing.T) {
	for _, tt := range []struct {
		console config.Console
		listen  string
		auth    config.Auth
		want    bool
	}{
		{config.ConsoleAuto, "127.0.0.1:7070", config.AuthNone, true},
		{config.ConsoleAuto, "0.0.0.0:7070", config.AuthNone, false},
		{config.ConsoleAuto, "0.0.0.0:7070", config.AuthAllow, false},
		{config.ConsoleAuto, "0.0.0.0:7070", config.AuthRequired, true},
		{config.ConsoleOff, "127.0.0.1:7070", config.AuthNone, false},
		{config.ConsoleOn, "0.0.0.0:7070", config.AuthNone, true},
	} {
		c := config.Default()
		c.Console, c.Listen, c.Auth = tt.console, tt.listen, tt.auth
		if got := c.ServesConsole(); got != tt.want {
			t.Errorf("%s on %s with auth %s: %v", tt.console, tt.listen, tt.auth, got)
		}
	}
	c := config.Default()
	c.Console = "maybe"
	if err := c.Validate(); err == nil {
		t.Error("a console of maybe is taken")
	}
}
