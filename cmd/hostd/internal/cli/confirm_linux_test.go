package cli

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/hostd/hostd/tests/support/testkit"
)

// A command asks for confirmation only on a terminal.
func TestConfirm(t *testing.T) {
	for _, tt := range []struct {
		typed    string
		terminal bool
		args     string
		done     bool
	}{
		{"y\n", true, "x", true},
		{"Yes\n", true, "x", true},
		{"n\n", true, "x", false},
		{"\n", true, "x", false},
		{"yess\n", true, "x", false},
		{"", true, "x --yes", true},
		{"", true, "nothing", true},
		{"n\n", false, "x", true},
	} {
		var out, talk bytes.Buffer
		std := Stdio{In: strings.NewReader(tt.typed), Out: &out, Err: &talk}
		if tt.terminal {
			screen, keys := testkit.Terminal(t)
			if _, err := keys.WriteString(tt.typed); err != nil {
				t.Fatal(err)
			}
			std.In, std.Err = screen, screen
		}
		done := false
		c := Leaf("rm NAME", "", 1, 1, func(context.Context, *cobra.Command, []string) error {
			done = true
			return nil
		})
		AddConfirm(c, std, func(args []string) string {
			if args[0] == "nothing" {
				return ""
			}
			return "Take " + args[0] + " away?"
		})
		code := Run(t.Context(), Group("hostd", "", c), append([]string{"rm"}, strings.Fields(tt.args)...), std)
		if done != tt.done || done != (code == ExitDone) {
			t.Errorf("%+v: done %v, exit code %d", tt, done, code)
		}
	}
}
