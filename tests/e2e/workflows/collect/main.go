// Collect is a workflow that adds the values of signals and makes a checkpoint
// after every few of them, so that its history never becomes long.
package main

import hostd "github.com/hostd/hostd/guest-sdk/go"

// Progress is the input of a run, and of each part of the run that begins at a
// checkpoint.
type Progress struct {
	// Signals is the number of signals that the run receives. After every Every
	// signals, the run deposits Every and makes a checkpoint.
	Signals int64 `json:"signals" hostd:"required"`
	Every   int64 `json:"every" hostd:"required,min=1"`
	// At is the number of signals received so far, and Sum is the sum of their
	// values.
	At  int64 `json:"at,omitempty"`
	Sum int64 `json:"sum,omitempty"`
}

// Amount is the payload of the signal "add" and of deposits.
type Amount struct {
	Amount int64 `json:"amount"`
}

func collect(f *hostd.Flow, p Progress) (Progress, error) {
	for {
		got, err := hostd.Wait[Amount](f, "add")
		if err != nil {
			return p, err
		}
		p.At++
		p.Sum += got.Amount
		if p.At%p.Every > 0 {
			continue
		}
		if _, err := hostd.Call[hostd.RawJSON](f, "account", "sink", "deposit", Amount{p.Every}); err != nil {
			return p, err
		}
		if p.At >= p.Signals {
			return p, nil
		}
		return p, f.Checkpoint(p)
	}
}

var _ = hostd.Serve("collect", "1.0.0", hostd.Workflow("collect", collect, hostd.Sends("account")))

func main() {}
