package entity

import (
	"testing"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/sharding"
)

// TestOnlyOutcomesCarryTokens checks that a guest that sends a message with a
// token gets the token back with the outcome, and that the receiver of the
// message does not get it.
func TestOnlyOutcomesCarryTokens(t *testing.T) {
	source := sharding.EntityID{Type: "account", ID: "a"}
	for _, tt := range []struct {
		name string
		kind request.Kind
		d    *request.Delivery
		want string
	}{
		{"command of a client", request.Command, nil, ""},
		{"message", request.Deliver, &request.Delivery{Source: source, OnReply: "paid", OnReject: "unpaid", Token: "t"}, ""},
		{"outcome", request.Deliver, &request.Delivery{Source: source, Answer: true, Token: "t"}, "t"},
		{"outcome of a dead letter", request.Redeliver, &request.Delivery{Source: source, Token: "t"}, "t"},
		{"outcome without a token", request.Deliver, &request.Delivery{Source: source, Answer: true}, ""},
	} {
		r := &request.Request{Kind: tt.kind, Name: "paid", ID: "1", Delivery: tt.d}
		var got abi.Request
		if err := abi.ParseRequest(&got, commandFrame(nil, &Type{}, 1, r, Env{})); err != nil || string(got.Token) != tt.want {
			t.Errorf("%s: the guest gets token %q, want %q: %v", tt.name, got.Token, tt.want, err)
		}
	}
}
