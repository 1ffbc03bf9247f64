// Nested is a workflow in which each run starts a child run, down to a given
// depth.
package main

import (
	"strconv"

	hostd "github.com/hostd/hostd/guest-sdk/go"
)

// Input of a run.
type Input struct {
	// Depth is the number of levels of child runs below the run.
	Depth int64 `json:"depth"`
}

// Count is the result of a run: the number of runs, including the run itself.
type Count struct {
	Runs int64 `json:"runs"`
}

func nested(f *hostd.Flow, in Input) (Count, error) {
	if in.Depth == 0 {
		return Count{1}, nil
	}
	below, err := hostd.Run[Count](f, "nested", f.ID()+"-"+strconv.FormatInt(in.Depth, 10), Input{in.Depth - 1})
	return Count{below.Runs + 1}, err
}

var _ = hostd.Serve("nested", "1.0.0", hostd.Workflow("nested", nested, hostd.Sends("nested")))

func main() {}
