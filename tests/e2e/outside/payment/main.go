// Payment is an entity with an effect outside of the cluster: it requests the
// effect with an event and learns the result from a command.
package main

import hostd "github.com/hostd/hostd/guest-sdk/go"

// State is the state of a payment: the requested amount and its receipt.
type State struct {
	Cents   int64  `json:"cents"`
	Receipt string `json:"receipt,omitempty"`
}

// Pay is the command that requests a payment.
type Pay struct {
	Cents int64 `json:"cents"`
}

// Settle is the command with the result of the payment.
type Settle struct {
	Receipt string `json:"receipt"`
}

// Requested is the event that the program outside reads.
type Requested struct {
	Cents int64 `json:"cents"`
}

// Settled is the event that ends the payment.
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
