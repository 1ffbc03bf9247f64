package main

import (
	"math"
	"testing"
	"time"

	"github.com/hostd/hostd/guest-sdk/go/hostdtest"
)

func TestLifeOfAnAccount(t *testing.T) {
	d := hostdtest.New(t, Account())
	d.When("open", nil).Events(Opened{}).Reply(Balance{0})
	d.When("open", nil).Events().Reply(Balance{0})
	d.When("deposit", Transfer{Amount: 10}).Events(Deposited{10}).Reply(Balance{10})
	d.When("withdraw", Transfer{Amount: 11}).Rejected("insufficient_funds")
	d.When("withdraw", Transfer{Amount: 10}).Events(Withdrawn{10}).Reply(Balance{0})
	d.When("withdraw", Transfer{Amount: 1}).Rejected("insufficient_funds")
	d.Query("balance", nil).Reply(Balance{0})
	d.Then(State{Open: true})
}

func TestDepositNeedsNoOpen(t *testing.T) {
	d := hostdtest.New(t, Account())
	d.When("withdraw", Transfer{Amount: 1}).Rejected("insufficient_funds")
	d.When("deposit", Transfer{Amount: 5}).Events(Deposited{5}).Reply(Balance{5})
	d.When("withdraw", Transfer{Amount: 2}).Reply(Balance{3})
}

func TestAmountsAreAboveZero(t *testing.T) {
	d := hostdtest.New(t, Account()).Given(Opened{}, Deposited{10})
	for _, command := range []string{"deposit", "withdraw"} {
		for _, amount := range []int64{0, -1, math.MinInt64} {
			d.When(command, Transfer{Amount: amount}).Rejected("invalid_amount")
		}
		d.When(command, nil).Rejected("invalid_amount")
	}
	d.Query("balance", nil).Reply(Balance{10})
}

func TestDepositNeverWrapsAround(t *testing.T) {
	d := hostdtest.New(t, Account()).Given(Deposited{math.MaxInt64})
	d.When("deposit", Transfer{Amount: 1}).Rejected("overflow")
	d.When("withdraw", Transfer{Amount: math.MaxInt64}).Reply(Balance{0})
}

func TestTransferConditionsAreChecked(t *testing.T) {
	d := hostdtest.New(t, Account())
	noon := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	d.When("deposit", Transfer{Amount: 1, MustBeOpen: true}).Rejected("not_open")
	d.When("open", nil).Events(Opened{})
	d.When("deposit", Transfer{Amount: 3, MustBeOpen: true}).Events(Deposited{3})
	d.At(noon.Add(-time.Millisecond)).When("deposit", Transfer{Amount: 1, Before: noon.UnixMilli()}).Events(Deposited{1})
	d.At(noon)
	d.When("deposit", Transfer{Amount: 1, Before: noon.UnixMilli()}).Rejected("too_late")
	d.When("withdraw", Transfer{Amount: 1, Before: noon.UnixMilli()}).Rejected("too_late")
	d.When("withdraw", Transfer{Amount: 4, Before: noon.UnixMilli() + 1}).Events(Withdrawn{4}).Reply(Balance{0})
}
