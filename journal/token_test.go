package journal_test

import (
	"errors"
	"testing"

	"github.com/hostd/hostd/journal"
)

// TestTokensFollowTheirMessages reads tokens alongside the messages of a
// record. A message may have no token. A token without a message, an empty
// token and a truncated token are rejected as damaged.
func TestTokensFollowTheirMessages(t *testing.T) {
	data := journal.AppendTokenOp(nil, journal.TokenOp{Item: 1, Token: []byte{0, 1}})
	data = journal.AppendTokenOp(data, journal.TokenOp{Item: 3, Token: []byte("x")})
	for n := 0; n <= len(data); n++ {
		tokens, got, err := journal.Tokens(data[:n]), "", error(nil)
		for item := uint16(0); item < 5 && err == nil; item++ {
			var token []byte
			if token, err = tokens.Next(item); err == nil {
				got += string(token) + ","
			}
		}
		if err == nil {
			err = tokens.End()
		}
		whole := n == 0 || n == 5 || n == len(data)
		if whole != (err == nil) || err != nil && !errors.Is(err, journal.ErrDamaged) {
			t.Errorf("%d bytes: %v", n, err)
		}
		if n == len(data) && got != ",\x00\x01,,x,," {
			t.Errorf("tokens are %q", got)
		}
	}
	for name, ops := range map[string][]journal.TokenOp{
		"without a message": {{Item: 5, Token: []byte("x")}},
		"empty":             {{Item: 1}},
		"descending":        {{Item: 2, Token: []byte("x")}, {Item: 1, Token: []byte("y")}},
	} {
		var data []byte
		for _, op := range ops {
			data = journal.AppendTokenOp(data, op)
		}
		tokens, err := journal.Tokens(data), error(nil)
		for item := uint16(0); item < 5 && err == nil; item++ {
			_, err = tokens.Next(item)
		}
		if err == nil {
			err = tokens.End()
		}
		if !errors.Is(err, journal.ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
