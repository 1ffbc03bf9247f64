package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/hostd/hostd/api/client"
)

// named are the flags of what takes effect once under an id.
type named struct {
	id    string
	tried time.Duration // ago
}

// addNamed adds them to the command line of what.
func addNamed(c *cobra.Command, n *named, what string) {
	c.Flags().StringVar(&n.id, "command-id", "", "`name` of the "+what+"; made up when it is not given")
	c.Flags().DurationVar(&n.tried, "first-tried", 0, "how long ago it was first tried with this --command-id, and the outcome is not known: then it is refused where that is forgotten")
}

// check makes an id where there is none.
func (n *named) check() error {
	switch {
	case n.tried < 0:
		return usagef("--first-tried is %s, must be above 0", n.tried)
	case n.tried > 0 && n.id == "":
		return usagef("--first-tried is of an attempt with a --command-id, which is not given")
	case n.id == "":
		n.id = client.NewCommandID()
	}
	return nil
}

// at is when it was first tried; zero when it was not.
func (n *named) at() time.Time {
	if n.tried == 0 {
		return time.Time{}
	}
	return time.Now().Add(-n.tried)
}

// ageMs is how long ago that was.
func (n *named) ageMs() uint64 {
	return uint64((n.tried + time.Millisecond - 1) / time.Millisecond)
}
