package page

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// asked is the page that a request asks for.
type asked struct {
	size  uint32
	token string
}

func (a asked) GetPageSize() uint32  { return a.size }
func (a asked) GetPageToken() string { return a.token }

// entries returns many items of a size.
func entries(many, size int) []string {
	out := make([]string, many)
	for i := range out {
		out[i] = fmt.Sprintf("%04d%s", i, strings.Repeat("x", size))
	}
	return out
}

func key(s *string) string { return (*s)[:4] }

func message(s *string) *wrapperspb.StringValue { return wrapperspb.String(*s) }

// TestPagesHoldTheirBounds: a page has at most the requested number of
// items, ends with the item that reaches Bytes, and is never empty. All
// pages together contain every item once and in order.
func TestPagesHoldTheirBounds(t *testing.T) {
	for _, c := range []struct {
		many, size int
		asked      uint32
		pages      int
	}{
		{0, 0, 0, 1}, {1, 0, 0, 1}, {100, 0, 0, 1}, {100, 0, 100, 1}, {100, 0, 99, 2}, {100, 0, 1, 100},
		{MaxItems + 1, 0, 0, 2}, {MaxItems + 1, 0, MaxItems, 2}, {MaxItems + 1, 0, 1 << 20, 2},
		{1024, 16 << 10, 0, 16}, {9, Bytes - 100, 0, 5}, {3, Bytes, 500, 3},
	} {
		items := entries(c.many, c.size)
		var got []string
		at, pages := asked{size: c.asked}, 0
		for {
			out, next, err := Of(at, 7, items, key, message)
			if err != nil {
				t.Fatal(err)
			}
			bytes := 0
			for _, m := range out {
				bytes += proto.Size(m)
				got = append(got, m.GetValue())
			}
			if last := len(out) - 1; last < 0 && c.many > 0 || last >= 0 && bytes-proto.Size(out[last]) >= Bytes || c.asked > 0 && len(out) > int(c.asked) || len(out) > MaxItems {
				t.Errorf("%+v: a page of %d items and %d bytes", c, len(out), bytes)
			}
			pages++
			if at.token = next; next == "" {
				break
			}
		}
		if strings.Join(got, " ") != strings.Join(items, " ") || pages != c.pages {
			t.Errorf("%+v: %d items in %d pages", c, len(got), pages)
		}
	}
}

// TestPagesFollowAListingThatChanges: the last item of a page may be deleted
// before the next page is read, and other items may be added.
func TestPagesFollowAListingThatChanges(t *testing.T) {
	items := []string{"0002", "0004", "0006"}
	out, next, err := Of(asked{size: 2}, 0, items, key, message)
	if err != nil || len(out) != 2 {
		t.Fatal(out, err)
	}
	out, next, err = Of(asked{token: next}, 0, []string{"0001", "0002", "0005", "0006"}, key, message)
	if err != nil || next != "" || len(out) != 2 || out[0].GetValue() != "0005" || out[1].GetValue() != "0006" {
		t.Errorf("%v, %q, %v", out, next, err)
	}
}

// TestTokensBelongToAListing: a listing rejects a token of a different
// listing, and an invalid token.
func TestTokensBelongToAListing(t *testing.T) {
	if Filter("a", "b") == Filter("ab") || Filter("a", "") == Filter("a") {
		t.Error("two filters are the same")
	}
	for _, token := range []string{"?", "AAAA", Token(8, []byte("0001"))} {
		if _, _, err := Of(asked{token: token}, 7, entries(2, 0), key, message); err != ErrToken {
			t.Errorf("token %q: %v", token, err)
		}
	}
	if out, _, err := Of(asked{token: Token(7, []byte("0000"))}, 7, entries(2, 0), key, message); err != nil || len(out) != 1 {
		t.Errorf("%v, %v", out, err)
	}
}
