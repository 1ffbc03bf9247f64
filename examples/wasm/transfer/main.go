// Transfer is an entity that moves money from one account to another: a saga.
// Each of its steps is a send whose outcome is sent back as a command, so that
// the transfer always learns the outcome of a step, and no money is created or
// lost:
//
//	start ─▶ withdrawing ─withdrawn──▶ depositing ─deposited──▶ done
//	             │   └─refused─▶ failed     └─refused─┐
//	             └─withdrawn, but too late────────────┴─▶ refunding ─▶ refunded
//
// The receiving account itself rejects a deposit after the time-out, because it
// decides atomically whether the deposit happens. Money that was withdrawn is
// always followed until it is deposited or refunded.
package main

import hostd "github.com/hostd/hostd/guest-sdk/go"

// States of a transfer.
const (
	Withdrawing = "withdrawing"
	Depositing  = "depositing"
	Refunding   = "refunding"
	Done        = "done"
	Failed      = "failed"   // no money was moved
	Refunded    = "refunded" // the withdrawn money was returned
)

// State of a transfer.
type State struct {
	State    string `json:"state,omitempty"` // empty before it starts
	From     string `json:"from,omitempty"`
	To       string `json:"to,omitempty"`
	Amount   int64  `json:"amount,omitempty"`
	Deadline int64  `json:"deadline,omitempty"` // unix milliseconds
	TimedOut bool   `json:"timedOut,omitempty"`
	Reason   string `json:"reason,omitempty"` // code of the first rejection
}

// Start is the payload of start.
type Start struct {
	From   string `json:"from"`
	To     string `json:"to"`
	Amount int64  `json:"amount"`
	// TimeoutMS is the number of milliseconds after which the money is returned
	// instead of deposited; 0 means 30 s.
	TimeoutMS int64 `json:"timeoutMs,omitempty"`
}

// Step is the payload of an account's deposit and withdraw commands.
type Step struct {
	Amount     int64 `json:"amount"`
	MustBeOpen bool  `json:"mustBeOpen,omitempty"`
	Before     int64 `json:"before,omitempty"`
}

// Refusal is the payload of the commands that receive a rejection.
type Refusal struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Status is the reply of start and of the query.
type Status struct {
	State    string `json:"state"`
	From     string `json:"from"`
	To       string `json:"to"`
	Amount   int64  `json:"amount"`
	TimedOut bool   `json:"timedOut"`
	Reason   string `json:"reason"`
}

// Events.
type (
	Started struct {
		From     string `json:"from"`
		To       string `json:"to"`
		Amount   int64  `json:"amount"`
		Deadline int64  `json:"deadline"`
	}
	TimedOut  struct{}
	Withdrawn struct{}
	Deposited struct{}
	Refused   struct { // a step, by one of the accounts
		Code string `json:"code"`
	}
	MoneyBack struct{}
)

const (
	defaultTimeout = 30 * hostd.Second
	longestTimeout = 24 * hostd.Hour
	refundAgain    = 5 * hostd.Second
)

// Transfer declares the entity type.
func Transfer() *hostd.Type[State] {
	// Its steps are sent to accounts, and only accounts send it messages.
	transfer := hostd.Entity[State]("transfer", hostd.JSON, hostd.Sends("account"), hostd.AcceptsFrom("account"))

	hostd.Event(transfer, "started", func(s *State, e Started) {
		*s = State{State: Withdrawing, From: e.From, To: e.To, Amount: e.Amount, Deadline: e.Deadline}
	})
	hostd.Event(transfer, "timed-out", func(s *State, _ TimedOut) { s.TimedOut = true })
	hostd.Event(transfer, "withdrawn", func(s *State, _ Withdrawn) {
		if s.State = Depositing; s.TimedOut {
			s.State = Refunding
		}
	})
	hostd.Event(transfer, "deposited", func(s *State, _ Deposited) { s.State = Done })
	hostd.Event(transfer, "refused", func(s *State, e Refused) {
		if s.Reason == "" {
			s.Reason = e.Code
		}
		switch s.State {
		case Withdrawing:
			s.State = Failed
		case Depositing:
			s.State = Refunding
		}
	})
	hostd.Event(transfer, "refunded", func(s *State, _ MoneyBack) { s.State = Refunded })

	hostd.Command(transfer, "start", start)
	// The steps, which clients may not send.
	hostd.Command(transfer, "timeout", timeout, hostd.Internal())
	hostd.Command(transfer, "withdrawn", withdrawn, hostd.Internal())
	hostd.Command(transfer, "withdraw-refused", withdrawRefused, hostd.Internal())
	hostd.Command(transfer, "deposited", finishDeposit, hostd.Internal())
	hostd.Command(transfer, "deposit-refused", depositRefused, hostd.Internal())
	hostd.Command(transfer, "refunded", finishRefund, hostd.Internal())
	hostd.Command(transfer, "refund-refused", refundRefused, hostd.Internal())
	hostd.Command(transfer, "refund", refund, hostd.Internal())
	hostd.Query(transfer, "status", func(_ *hostd.View, s *State, _ hostd.None) (Status, error) {
		return s.status(), nil
	})
	return transfer
}

func (s *State) status() Status {
	return Status{State: s.State, From: s.From, To: s.To, Amount: s.Amount, TimedOut: s.TimedOut, Reason: s.Reason}
}

// start begins the transfer. A repeated start with the same payload changes
// nothing.
func start(c *hostd.Context, s *State, cmd Start) (Status, error) {
	switch {
	case cmd.Amount <= 0:
		return Status{}, hostd.Reject("invalid_amount", "the amount must be above 0")
	case cmd.From == "" || cmd.To == "" || cmd.From == cmd.To:
		return Status{}, hostd.Reject("invalid_account", "two different accounts are needed")
	case s.State != "" && (s.From != cmd.From || s.To != cmd.To || s.Amount != cmd.Amount):
		return Status{}, hostd.Reject("already_started", "this transfer is another one")
	case s.State != "":
		return s.status(), nil
	}
	wait := hostd.Duration(min(max(cmd.TimeoutMS, 0), int64(longestTimeout/hostd.Millisecond))) * hostd.Millisecond
	if wait == 0 {
		wait = defaultTimeout
	}
	due := c.Now().Add(wait)
	c.Emit(Started{cmd.From, cmd.To, cmd.Amount, int64(due) / int64(hostd.Millisecond)})
	c.SetTimer("timeout", due, "timeout", nil)
	c.SendWithAnswer("account", s.From, "withdraw", Step{Amount: s.Amount}, hostd.Answer{OnReply: "withdrawn", OnReject: "withdraw-refused"})
	return s.status(), nil
}

// timeout only records that the deadline has passed, because the step in
// progress continues until its outcome arrives.
func timeout(c *hostd.Context, s *State, _ hostd.None) (hostd.None, error) {
	if c.Source().Kind != hostd.SourceTimer {
		return hostd.None{}, notForClients
	}
	if !s.TimedOut && (s.State == Withdrawing || s.State == Depositing) {
		c.Emit(TimedOut{})
	}
	return hostd.None{}, nil
}

func withdrawn(c *hostd.Context, s *State, _ hostd.None) (hostd.None, error) {
	if !answers(c, s.From) || s.State != Withdrawing {
		return hostd.None{}, notForClients
	}
	if c.Emit(Withdrawn{}); s.TimedOut {
		payBack(c, s)
		return hostd.None{}, nil
	}
	c.SendWithAnswer("account", s.To, "deposit", Step{Amount: s.Amount, MustBeOpen: true, Before: s.Deadline},
		hostd.Answer{OnReply: "deposited", OnReject: "deposit-refused"})
	return hostd.None{}, nil
}

func withdrawRefused(c *hostd.Context, s *State, cmd Refusal) (hostd.None, error) {
	if !answers(c, s.From) || s.State != Withdrawing {
		return hostd.None{}, notForClients
	}
	c.Emit(Refused{cmd.Code})
	c.CancelTimer("timeout")
	return hostd.None{}, nil
}

func finishDeposit(c *hostd.Context, s *State, _ hostd.None) (hostd.None, error) {
	if !answers(c, s.To) || s.State != Depositing {
		return hostd.None{}, notForClients
	}
	c.Emit(Deposited{})
	c.CancelTimer("timeout")
	return hostd.None{}, nil
}

func depositRefused(c *hostd.Context, s *State, cmd Refusal) (hostd.None, error) {
	if !answers(c, s.To) || s.State != Depositing {
		return hostd.None{}, notForClients
	}
	c.Emit(Refused{cmd.Code})
	c.CancelTimer("timeout")
	payBack(c, s)
	return hostd.None{}, nil
}

func finishRefund(c *hostd.Context, s *State, _ hostd.None) (hostd.None, error) {
	if !answers(c, s.From) || s.State != Refunding {
		return hostd.None{}, notForClients
	}
	c.Emit(MoneyBack{})
	return hostd.None{}, nil
}

// refundRefused tries again later, because a rejected refund has moved no
// money.
func refundRefused(c *hostd.Context, s *State, cmd Refusal) (hostd.None, error) {
	if !answers(c, s.From) || s.State != Refunding {
		return hostd.None{}, notForClients
	}
	c.Emit(Refused{cmd.Code})
	c.SetTimer("refund", c.Now().Add(refundAgain), "refund", nil)
	return hostd.None{}, nil
}

func refund(c *hostd.Context, s *State, _ hostd.None) (hostd.None, error) {
	if c.Source().Kind != hostd.SourceTimer || s.State != Refunding {
		return hostd.None{}, notForClients
	}
	payBack(c, s)
	return hostd.None{}, nil
}

// payBack returns the withdrawn money.
func payBack(c *hostd.Context, s *State) {
	c.SendWithAnswer("account", s.From, "deposit", Step{Amount: s.Amount}, hostd.Answer{OnReply: "refunded", OnReject: "refund-refused"})
}

// answers reports whether a command is the answer of an account or, if there is
// no entity type account, of the node itself.
func answers(c *hostd.Context, account string) bool {
	from := c.Source()
	if from.Kind != hostd.SourceEntity {
		return false
	}
	return from.EntityType == "account" && from.EntityID == account || from.EntityType == c.EntityType() && from.EntityID == c.EntityID()
}

var notForClients = hostd.Reject("not_expected", "no step of the transfer waits for this")

var _ = hostd.Serve("transfer", "1.0.0", Transfer())

func main() {}
