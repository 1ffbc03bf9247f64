package abitest

import (
	"strings"
	"testing"

	hostd "github.com/hostd/hostd/guest-sdk/go"
)

type payoutState struct{ To, Bank, Step string }

type (
	payoutStarted struct{ To string }
	payoutBooked  struct{ Bank string }
	payoutEnded   struct{ Why string }
)

// payout is a saga: each step sends to the entity that the previous step has
// found, and the handlers trust that only the outcome of that step calls them.
// If broken is set, the last step sends to an invalid entity.
func payout(broken, internal bool) native {
	var options []hostd.CommandOption
	if internal {
		options = append(options, hostd.Internal())
	}
	return func(uint64) *hostd.Guest {
		p := hostd.Entity[payoutState]("payout", hostd.JSON)
		hostd.Event(p, "started", func(s *payoutState, e payoutStarted) { s.To, s.Step = e.To, "book" })
		hostd.Event(p, "booked", func(s *payoutState, e payoutBooked) { s.Bank, s.Step = e.Bank, "pay" })
		hostd.Event(p, "ended", func(s *payoutState, e payoutEnded) { *s = payoutState{Step: e.Why} })
		hostd.Command(p, "start", func(c *hostd.Context, s *payoutState, _ hostd.None) (hostd.None, error) {
			if s.To != "" {
				return hostd.None{}, hostd.Reject("busy", "a payout is on its way")
			}
			c.Emit(payoutStarted{"alice"})
			c.SendWithAnswer("account", "alice", "book", nil, hostd.Answer{OnReply: "booked", OnReject: "refused"})
			return hostd.None{}, nil
		})
		hostd.Command(p, "booked", func(c *hostd.Context, s *payoutState, _ hostd.None) (hostd.None, error) {
			c.Emit(payoutBooked{"bank-of-" + s.To})
			c.SendWithAnswer("account", s.To, "hold", nil, hostd.Answer{OnReply: "held", OnReject: "refused"})
			c.SetTimer("late", c.Now().Add(hostd.Hour), "late", nil)
			return hostd.None{}, nil
		}, options...)
		hostd.Command(p, "held", func(c *hostd.Context, s *payoutState, _ hostd.None) (hostd.None, error) {
			to := s.Bank
			if broken {
				to = ""
			}
			c.Send("bank", to, "pay", nil)
			c.Emit(payoutEnded{"paid"})
			return hostd.None{}, nil
		}, options...)
		hostd.Command(p, "refused", func(c *hostd.Context, s *payoutState, _ hostd.None) (hostd.None, error) {
			if s.To != "" {
				c.Send("account", s.To, "release", nil)
			}
			c.Emit(payoutEnded{"refused"})
			return hostd.None{}, nil
		}, options...)
		hostd.Command(p, "late", func(c *hostd.Context, s *payoutState, _ hostd.None) (hostd.None, error) {
			if s.To != "" {
				c.Send("account", s.To, "remind", nil)
			}
			return hostd.None{}, nil
		}, hostd.Internal())
		return hostd.NewGuest("payout", "1.0.0", p)
	}
}

// TestCorrectSagaPasses checks that outcomes are only sent to entities that
// have requested them.
func TestCorrectSagaPasses(t *testing.T) {
	for _, internal := range []bool{true, false} {
		for seed := range uint64(20) {
			if report := run(t, payout(false, internal), Options{Seed: seed}); !report.OK() {
				t.Fatalf("seed %d, internal %v:\n%s", seed, internal, report)
			}
		}
	}
}

// TestSagaStepsAreChecked checks that the suite reaches the last step of a
// saga and finds a fault in it.
func TestSagaStepsAreChecked(t *testing.T) {
	found := 0
	for seed := range uint64(20) {
		if report := run(t, payout(true, true), Options{Seed: seed}); !report.OK() && strings.Contains(report.String(), "command held") {
			found++
		}
	}
	if found < 18 {
		t.Errorf("the fault was found with %d of 20 seeds", found)
	}
}
