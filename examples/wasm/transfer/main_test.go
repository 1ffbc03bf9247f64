package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	hostd "github.com/hostd/hostd/guest-sdk/go"
	"github.com/hostd/hostd/guest-sdk/go/hostdtest"
)

// balance is the state of the test's accounts, which follow the rules of the
// example account.
type balance struct {
	Balance int64 `json:"balance"`
	Open    bool  `json:"open"`
}

type moved struct {
	By int64 `json:"by"`
}

type opened struct{}

func account() *hostd.Type[balance] {
	a := hostd.Entity[balance]("account", hostd.JSON)
	hostd.Event(a, "moved", func(s *balance, e moved) { s.Balance += e.By })
	hostd.Event(a, "opened", func(s *balance, _ opened) { s.Open = true })
	hostd.Command(a, "open", func(c *hostd.Context, s *balance, _ hostd.None) (balance, error) {
		c.Emit(opened{})
		return *s, nil
	})
	move := func(sign int64) func(*hostd.Context, *balance, Step) (balance, error) {
		return func(c *hostd.Context, s *balance, cmd Step) (balance, error) {
			switch {
			case cmd.MustBeOpen && !s.Open:
				return balance{}, hostd.Reject("not_open", "")
			case cmd.Before != 0 && int64(c.Now())/int64(hostd.Millisecond) >= cmd.Before:
				return balance{}, hostd.Reject("too_late", "")
			case s.Balance+sign*cmd.Amount < 0:
				return balance{}, hostd.Reject("insufficient_funds", "")
			}
			c.Emit(moved{sign * cmd.Amount})
			return *s, nil
		}
	}
	hostd.Command(a, "deposit", move(1))
	hostd.Command(a, "withdraw", move(-1))
	return a
}

func status(t *testing.T, w *hostdtest.World, id string) (s Status) {
	t.Helper()
	if err := json.Unmarshal(w.Query("transfer", id, "status", nil).Reply, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// bank returns a world with accounts a and b, where a has 10.
func bank(t *testing.T) *hostdtest.World {
	w := hostdtest.NewWorld(t, 1, Transfer(), account())
	for _, id := range []string{"a", "b"} {
		w.Command("account", id, "open", nil)
	}
	w.Command("account", "a", "deposit", Step{Amount: 10})
	return w
}

func TestMoneyMoves(t *testing.T) {
	w := bank(t)
	w.Command("transfer", "t", "start", Start{From: "a", To: "b", Amount: 3})
	w.Run()
	w.Advance(time.Hour)
	w.Run()
	if s := status(t, w, "t"); s.State != Done || s.TimedOut || s.Reason != "" {
		t.Errorf("%+v", s)
	}
}

func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		from, to      string
		amount        int64
		state, reason string
	}{
		{"a", "b", 11, Failed, "insufficient_funds"},
		{"a", "nobody", 3, Refunded, "not_open"},
		{"nobody", "b", 3, Failed, "insufficient_funds"},
	} {
		w := bank(t)
		w.Command("transfer", "t", "start", Start{From: c.from, To: c.to, Amount: c.amount})
		w.Run()
		if s := status(t, w, "t"); s.State != c.state || s.Reason != c.reason {
			t.Errorf("%+v: %+v", c, s)
		}
	}
}

// The time-out arrives before the answer of the withdrawal: the withdrawal is
// followed, and the money is refunded.
func TestLateWithdrawalIsRefunded(t *testing.T) {
	w := bank(t)
	w.Command("transfer", "t", "start", Start{From: "a", To: "b", Amount: 3, TimeoutMS: 1000})
	w.Advance(time.Minute)
	if s := status(t, w, "t"); s.State != Withdrawing || !s.TimedOut {
		t.Fatalf("%+v", s)
	}
	w.Run()
	if s := status(t, w, "t"); s.State != Refunded || !s.TimedOut {
		t.Errorf("%+v", s)
	}
}

// The time-out arrives while the deposit is in transit: the account rejects it.
func TestLateDepositIsRejected(t *testing.T) {
	w := bank(t)
	w.Command("transfer", "t", "start", Start{From: "a", To: "b", Amount: 3, TimeoutMS: 1000})
	w.Step() // withdraw
	w.Step() // withdrawn
	w.Advance(time.Minute)
	if s := status(t, w, "t"); s.State != Depositing || !s.TimedOut {
		t.Fatalf("%+v", s)
	}
	w.Run()
	if s := status(t, w, "t"); s.State != Refunded || s.Reason != "too_late" {
		t.Errorf("%+v", s)
	}
}

func TestWithoutAccounts(t *testing.T) {
	w := hostdtest.NewWorld(t, 1, Transfer())
	w.Command("transfer", "t", "start", Start{From: "a", To: "b", Amount: 3})
	w.Run()
	if s := status(t, w, "t"); s.State != Failed || s.Reason != "not_found" {
		t.Errorf("%+v", s)
	}
}

// TestStepsAreNotForClients checks that a step from a client does not reach the
// transfer.
func TestStepsAreNotForClients(t *testing.T) {
	w := bank(t)
	w.Command("transfer", "t", "start", Start{From: "a", To: "b", Amount: 3})
	if o := w.Command("transfer", "t", "withdrawn", nil); o.Code != hostdtest.CodeInternal {
		t.Errorf("%+v", o)
	}
	if s := status(t, w, "t"); s.State != Withdrawing {
		t.Errorf("%+v", s)
	}
}

func TestStart(t *testing.T) {
	d := hostdtest.New(t, Transfer())
	d.When("start", Start{From: "a", To: "b"}).Rejected("invalid_amount")
	d.When("start", Start{From: "a", To: "a", Amount: 1}).Rejected("invalid_account")
	d.When("start", Start{From: "a", To: "b", Amount: 1}).Sends(hostdtest.Send{EntityType: "account", EntityID: "a", Command: "withdraw",
		Payload: Step{Amount: 1}, Answer: hostd.Answer{OnReply: "withdrawn", OnReject: "withdraw-refused"}})
	d.When("start", Start{From: "a", To: "b", Amount: 1}).Events().Sends()
	d.When("start", Start{From: "a", To: "b", Amount: 2}).Rejected("already_started")
	for _, command := range []string{"timeout", "withdrawn", "withdraw-refused", "deposited", "deposit-refused", "refunded", "refund-refused", "refund"} {
		d.When(command, nil).Rejected(hostdtest.CodeInternal)
	}
	d.From("account", "b").When("withdrawn", nil).Rejected("not_expected")
	d.From("account", "a").When("withdrawn", nil).Events(Withdrawn{})
	d.From("account", "a").When("withdrawn", nil).Rejected("not_expected")
	if got := d.State().State; got != Depositing {
		t.Error(got)
	}
	if d.From("account", "b").When("deposited", nil).Events(Deposited{}).Output().Timers[0].Cancel != true {
		t.Error("the time-out stays")
	}
}

// Whatever the order of events, the amount of money stays the same, and each
// transfer ends.
func TestMoneyIsKept(t *testing.T) {
	ended := map[string]int{}
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 9))
		w := hostdtest.NewWorld(t, seed, Transfer(), account())
		const accounts, start = 4, 20
		for i := range accounts {
			if i > 0 { // the first account is never opened
				w.Command("account", fmt.Sprint(i), "open", nil)
			}
			w.Command("account", fmt.Sprint(i), "deposit", Step{Amount: start})
		}
		n := 0
		for range 200 {
			switch p := rnd.IntN(10); {
			case p == 0:
				w.Command("transfer", fmt.Sprint(n), "start", Start{
					From: fmt.Sprint(rnd.IntN(accounts)), To: fmt.Sprint(rnd.IntN(accounts)), Amount: 1 + rnd.Int64N(12), TimeoutMS: 1 + rnd.Int64N(300),
				})
				n++
			case p < 4:
				w.Advance(time.Duration(rnd.IntN(60)) * time.Millisecond)
			default:
				w.Step()
			}
		}
		for range 5 {
			w.Run()
			w.Advance(10 * time.Second)
		}
		if len(w.Sends())+len(w.DeadLetters()) > 0 {
			t.Fatalf("seed %d: %d sends and %d dead letters are left", seed, len(w.Sends()), len(w.DeadLetters()))
		}
		sum := int64(0)
		for i := range accounts {
			var b balance
			if err := json.Unmarshal(w.Command("account", fmt.Sprint(i), "deposit", Step{}).Reply, &b); err != nil {
				t.Fatal(err)
			}
			sum += b.Balance
		}
		if sum != accounts*start {
			t.Fatalf("seed %d: %d in all accounts, want %d", seed, sum, accounts*start)
		}
		for i := range n {
			s := status(t, w, fmt.Sprint(i))
			if s.State != "" && s.State != Done && s.State != Failed && s.State != Refunded {
				t.Fatalf("seed %d: transfer %d ends %+v", seed, i, s)
			}
			ended[fmt.Sprint(s.State, " ", s.TimedOut)]++
		}
	}
	t.Log(ended)
	if ended["done false"] == 0 || ended["refunded true"] == 0 || ended["failed true"] == 0 || ended["refunded false"] == 0 {
		t.Error("the runs were too tame")
	}
}
