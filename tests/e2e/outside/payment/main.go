// Payment is an entity that has something done outside: it says what in an
// event, and is told what came of it by a command.
package main

import hostd "github.com/hostd/hostd/guest-sdk/go"

// State of a payment: what was asked for, and what came of it.
type State struct {
	Cents   int64  `json:"cents"`
	Receipt string `json:"receipt,omitempty"`
}

// Pay asks for a payment.
type Pay struct {
	Cents int64 `json:"cents"`
}

// Settle tells what came of it.
type Settle struct {
	Receipt string `json:"receipt"`
}

// Requested is what is read outside.
type Requested struct {
	Cents int64 `json:"cents"`
}

// Settled ends it.
type Settled struct {
	Receipt string `json:"receipt"`
}

// Payment declares the entity type.
func Payment() *hostd.Type[State] {
	payment := hostd.Entity[State]("payment", hostd.JSON)
	hostd.Event(payment, "requested", func(s *State, e Requested) { s.Cents = e.Cents })
	hostd.Event(payment, "settled", func(s *State, e Settled) { s.Receipt = e.Receipt })
	hostd.Command(payment, "pay", func(c *hostd.Context, s *State, cmd Pay) (State, error) {
		if s.Cents != 0 {
			return State{}, hostd.Reject("requested", "it was asked for already")
		}
		c.Emit(Requested{cmd.Cents})
		return *s, nil
	})
	hostd.Command(payment, "settle", func(c *hostd.Context, s *State, cmd Settle) (State, error) {
		if s.Receipt == "" { // a second answer changes nothing
			c.Emit(Settled{cmd.Receipt})
		}
		return *s, nil
	})
	return payment
}

var _ = hostd.Serve("payment", "1.0.0", Payment())

func main() {}
