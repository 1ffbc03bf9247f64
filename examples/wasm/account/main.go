// Account is an entity with an invariant: its balance is never negative.
package main

import hostd "github.com/hostd/hostd/guest-sdk/go"

// State of an account.
type State struct {
	Balance int64 `json:"balance"`
	Open    bool  `json:"open"`
}

// Transfer is the payload of deposit and withdraw.
type Transfer struct {
	Amount int64 `json:"amount"`
	// MustBeOpen rejects a deposit to an account that has not been opened.
	MustBeOpen bool `json:"mustBeOpen,omitempty"`
	// Before, in milliseconds since 1970, is a deadline after which the command
	// is rejected; 0 means none.
	Before int64 `json:"before,omitempty"`
}

// late reports whether the command arrived after its deadline.
func (t *Transfer) late(c *hostd.Context) bool {
	return t.Before != 0 && int64(c.Now()) >= t.Before*int64(hostd.Millisecond)
}

// Balance is the reply of commands and of the query.
type Balance struct {
	Balance int64 `json:"balance"`
}

// Events.
type (
	Opened    struct{}
	Deposited struct {
		Amount int64 `json:"amount"`
	}
	Withdrawn struct {
		Amount int64 `json:"amount"`
	}
)

// Account declares the entity type.
func Account() *hostd.Type[State] {
	account := hostd.Entity[State]("account", hostd.JSON)

	hostd.Event(account, "opened", func(s *State, _ Opened) { s.Open = true })
	hostd.Event(account, "deposited", func(s *State, e Deposited) { s.Balance += e.Amount })
	hostd.Event(account, "withdrawn", func(s *State, e Withdrawn) { s.Balance -= e.Amount })

	hostd.Command(account, "open", open)
	hostd.Command(account, "deposit", deposit, hostd.Rejects("invalid_amount", "not_open", "too_late", "overflow"))
	hostd.Command(account, "withdraw", withdraw, hostd.Rejects("invalid_amount", "insufficient_funds", "too_late"))
	hostd.Query(account, "balance", func(_ *hostd.View, s *State, _ hostd.None) (Balance, error) {
		return Balance{s.Balance}, nil
	})
	return account
}

// open marks the account as open. Opening it again changes nothing, so a caller
// that is not sure may simply open it.
func open(c *hostd.Context, s *State, _ hostd.None) (Balance, error) {
	if !s.Open {
		c.Emit(Opened{})
	}
	return Balance{s.Balance}, nil
}

// deposit adds to the balance. By default, an account that was never opened
// accepts deposits too, because every id names an account with a balance of 0.
func deposit(c *hostd.Context, s *State, cmd Transfer) (Balance, error) {
	if cmd.Amount <= 0 {
		return Balance{}, invalidAmount
	}
	if cmd.MustBeOpen && !s.Open {
		return Balance{}, hostd.Reject("not_open", "nobody has opened the account")
	}
	if cmd.late(c) {
		return Balance{}, tooLate
	}
	if s.Balance+cmd.Amount < s.Balance {
		return Balance{}, hostd.Reject("overflow", "the balance would not fit 64 bits")
	}
	c.Emit(Deposited{cmd.Amount})
	return Balance{s.Balance}, nil
}

func withdraw(c *hostd.Context, s *State, cmd Transfer) (Balance, error) {
	if cmd.Amount <= 0 {
		return Balance{}, invalidAmount
	}
	if cmd.late(c) {
		return Balance{}, tooLate
	}
	if cmd.Amount > s.Balance {
		return Balance{}, hostd.Reject("insufficient_funds", "the balance is smaller than the amount")
	}
	c.Emit(Withdrawn{cmd.Amount})
	return Balance{s.Balance}, nil
}

var (
	invalidAmount = hostd.Reject("invalid_amount", "the amount must be above 0")
	tooLate       = hostd.Reject("too_late", "the command came after its time")
)

var _ = hostd.Serve("account", "1.0.0", Account())

func main() {}
