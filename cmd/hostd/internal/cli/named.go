package cli

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/hostd/hostd/api/client"
)

// Named are the flags of what takes effect once under an id.
type Named struct {
	ID    string
	tried time.Duration // ago
}

// AddNamed adds them to the command line of what, and makes an id where there
// is none.
func AddNamed(c *cobra.Command, n *Named, what string) {
	c.Flags().StringVar(&n.ID, "command-id", "", "unique `id` of the "+what+", for safe retries; generated if unset")
	c.Flags().DurationVar(&n.tried, "first-tried", 0, "`time` since the first attempt with this --command-id; a node that may have forgotten the outcome since then rejects the call instead of repeating its effect")
	Before(c, func([]string) error { return n.check() })
}

// check makes an id where there is none.
func (n *Named) check() error {
	switch {
	case n.tried < 0:
		return Usagef("--first-tried is %s, must be above 0", n.tried)
	case n.tried > 0 && n.ID == "":
		return Usagef("--first-tried is of an attempt with a --command-id, which is not given")
	case n.ID == "":
		n.ID = client.NewCommandID()
	}
	return nil
}

// At is when it was first tried; zero when it was not.
func (n *Named) At() time.Time {
	if n.tried == 0 {
		return time.Time{}
	}
	return time.Now().Add(-n.tried)
}

// AgeMs is how long ago that was.
func (n *Named) AgeMs() uint64 {
	return uint64((n.tried + time.Millisecond - 1) / time.Millisecond)
}
