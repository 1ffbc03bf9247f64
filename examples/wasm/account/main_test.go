package main

import (
	"math"
	"testing"

	"github.com/hostd/hostd/guest-sdk/go/hostdtest"
)

func TestLifeOfAnAccount(t *testing.T) {
	d := hostdtest.New(t, Account())
	d.When("open", nil).Events(Opened{}).Reply(Balance{0})
	d.When("open", nil).Events().Reply(Balance{0})
	d.When("deposit", Transfer{10}).Events(Deposited{10}).Reply(Balance{10})
	d.When("withdraw", Transfer{11}).Rejected("insufficient_funds")
	d.When("withdraw", Transfer{10}).Events(Withdrawn{10}).Reply(Balance{0})
	d.When("withdraw", Transfer{1}).Rejected("insufficient_funds")
	d.Query("balance", nil).Reply(Balance{0})
	d.Then(State{Open: true})
}

func TestDepositNeedsNoOpen(t *testing.T) {
	d := hostdtest.New(t, Account())
	d.When("withdraw", Transfer{1}).Rejected("insufficient_funds")
	d.When("deposit", Transfer{5}).Events(Deposited{5}).Reply(Balance{5})
	d.When("withdraw", Transfer{2}).Reply(Balance{3})
}

func TestAmountsAreAboveZero(t *testing.T) {
	d := hostdtest.New(t, Account()).Given(Opened{}, Deposited{10})
	for _, command := range []string{"deposit", "withdraw"} {
		for _, amount := range []int64{0, -1, math.MinInt64} {
			d.When(command, Transfer{amount}).Rejected("invalid_amount")
		}
		d.When(command, nil).Rejected("invalid_amount")
	}
	d.Query("balance", nil).Reply(Balance{10})
}

func TestDepositNeverWrapsAround(t *testing.T) {
	d := hostdtest.New(t, Account()).Given(Deposited{math.MaxInt64})
	d.When("deposit", Transfer{1}).Rejected("overflow")
	d.When("withdraw", Transfer{math.MaxInt64}).Reply(Balance{0})
}
