package main

import (
	"math"
	"testing"

	hostd "github.com/hostd/hostd/guest-sdk/go"
	"github.com/hostd/hostd/guest-sdk/go/hostdtest"
)

func TestAdd(t *testing.T) {
	d := hostdtest.New(t, Counter())
	d.Query("total", nil).Reply(Total{0})
	d.When("add", Add{3}).Events(Added{3}).Reply(hostd.RawJSON(`{"total":3}`))
	d.When("add", hostd.RawJSON(`{"amount":-5}`)).Events(Added{-5}).Reply(Total{-2})
	d.When("add", hostd.RawJSON(`{"amount":"9007199254740993"}`)).Reply(Total{9007199254740991})
	d.When("add", nil).Events(Added{0}).Reply(Total{9007199254740991})
	d.Query("total", hostd.RawJSON(`{"ignored":true}`)).Reply(Total{9007199254740991})
	d.Then(State{9007199254740991})
}

func TestAddRejectsNonIntegers(t *testing.T) {
	d := hostdtest.New(t, Counter())
	for _, payload := range []string{`{"amount":1.5}`, `{"amount":"x"}`, `{"amount":true}`, `{"amount":9223372036854775808}`, `[1]`, `1`, `{`} {
		d.When("add", hostd.RawJSON(payload)).Rejected(hostd.CodeInvalidPayload)
	}
	d.Then(State{})
}

func TestReset(t *testing.T) {
	d := hostdtest.New(t, Counter()).Given(Added{7})
	d.When("reset", nil).Events(WasReset{}).Reply(Total{0})
	d.When("add", Add{1}).Reply(Total{1})
}

func TestAddNeverWrapsAround(t *testing.T) {
	for _, c := range []struct {
		total, amount int64
		fits          bool
	}{
		{math.MaxInt64, 0, true}, {math.MaxInt64, 1, false}, {math.MaxInt64 - 1, 1, true}, {math.MaxInt64, math.MinInt64, true},
		{math.MinInt64, 0, true}, {math.MinInt64, -1, false}, {math.MinInt64 + 1, -1, true}, {-1, math.MinInt64, false}, {0, math.MinInt64, true},
	} {
		d := hostdtest.New(t, Counter()).Given(Added{c.total})
		if r := d.When("add", Add{c.amount}); c.fits {
			r.Reply(Total{c.total + c.amount})
		} else {
			r.Rejected("overflow")
		}
	}
}

func BenchmarkAdd(b *testing.B) {
	hostdtest.Benchmark(b, Counter(), "add", Add{3})
}
