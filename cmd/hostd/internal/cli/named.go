package cli

import (
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/hostd/hostd/api/client"
)

// Named has the flags of an operation that takes effect once under an id.
type Named struct {
	ID    string
	tried time.Duration // how long ago the operation was first tried
}

// AddNamed adds the flags to a command and generates an id if none is given.
// what is the name of the operation in the help texts.
func AddNamed(c *cobra.Command, n *Named, what string) {
	c.Flags().StringVar(&n.ID, "command-id", "", "unique `id` of the "+what+", for safe retries; generated if unset")
	c.Flags().DurationVar(&n.tried, "first-tried", 0, "`time` since the first attempt with this --command-id; a node that may have forgotten the outcome since then rejects the call instead of repeating its effect")
	Before(c, func([]string) error { return n.check() })
}

// check generates an id if none is given.
func (n *Named) check() error {
	switch {
	case n.tried < 0:
		return Usagef("--first-tried must be above 0, got %s", n.tried)
	case n.tried > 0 && n.ID == "":
		return Usagef("--first-tried needs the --command-id of the first attempt")
	case n.ID == "":
		n.ID = client.NewCommandID()
	}
	return nil
}

// At returns when the operation was first tried; zero if this is the first
// attempt.
func (n *Named) At() time.Time {
	if n.tried == 0 {
		return time.Time{}
	}
	return time.Now().Add(-n.tried)
}

// Age returns how long ago the operation was first tried; nil if this is the
// first attempt.
func (n *Named) Age() *durationpb.Duration {
	if n.tried == 0 {
		return nil
	}
	return durationpb.New(n.tried)
}
