// Package page ends the answers of listings where every client still takes
// them. A client of gRPC refuses a message over 4 MiB unless it is configured
// otherwise, so a page has a bound in bytes beside its bound in items, and a
// token says where the next one starts.
//
// It keeps nothing between two calls and has no goroutine: a token holds the
// place where a page ended, not a reference to a listing of the node.
package page

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"hash/fnv"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/hostd/hostd/host/status"
)

const (
	// Bytes is where a page ends: with the item that brings it there. No item
	// has more than 1 MiB.
	Bytes = 1 << 20
	// MaxItems is the most items that a page has if its listing has no smaller
	// bound.
	MaxItems = 4096
	// MaxAnswer is what an answer may have at most: clients of gRPC take 4 MiB,
	// with headers and trailers.
	MaxAnswer = 3 << 20
)

// Room is what is left of a page. It serves one goroutine.
type Room struct {
	items, bytes int
}

// NewRoom is the room of an empty page of so many items at most.
func NewRoom(items int) *Room { return &Room{items: items, bytes: Bytes} }

// Full reports whether the page has ended.
func (r *Room) Full() bool { return r.items <= 0 || r.bytes <= 0 }

// Items is how many more items may be added.
func (r *Room) Items() int { return r.items }

// Bytes is after how many more bytes the page ends.
func (r *Room) Bytes() int { return r.bytes }

// Take counts an item that is added.
func (r *Room) Take(item proto.Message) {
	r.items--
	r.bytes -= proto.Size(item)
}

// Filter tells listings with different filters apart: the token of one is none
// of another.
func Filter(parts ...string) uint32 {
	h := fnv.New32a()
	for _, part := range parts {
		h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(part))))
		h.Write([]byte(part))
	}
	return h.Sum32()
}

// Token hides a place of a listing from callers, who must not build on its
// form.
func Token(filter uint32, place []byte) string {
	return base64.RawURLEncoding.EncodeToString(append(binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(place)), filter), place...))
}

// Parse returns the place of a token of a listing with the filter. It fails
// with an argument error for any other token.
func Parse(token string, filter uint32) ([]byte, error) {
	b, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(b) < 4 || binary.BigEndian.Uint32(b) != filter {
		return nil, ErrToken
	}
	return b[4:], nil
}

// ErrToken: the page token is not one of the listing that it was given to.
var ErrToken = status.Argument("the page token is not one of this listing")

// Request is the part of a request that asks for a page. A size of 0 asks for
// as many items as there is room for.
type Request interface {
	GetPageSize() uint32
	GetPageToken() string
}

// Of returns a page of items that are all in memory, and the token of the next
// one, empty at the end. The items are in ascending order of their keys, which
// are distinct; only the items of the page are made into messages. What is
// added or removed between two pages is in the listing if its key is behind the
// page that was read, so no other item comes twice or is missing.
func Of[T any, M proto.Message](r Request, filter uint32, items []T, key func(*T) string, message func(*T) M) (out []M, next string, err error) {
	first := 0
	if token := r.GetPageToken(); token != "" {
		place, err := Parse(token, filter)
		if err != nil {
			return nil, "", err
		}
		after := string(place)
		first, _ = slices.BinarySearchFunc(items, after, func(item T, after string) int {
			return cmp.Or(strings.Compare(key(&item), after), -1) // the item itself was on the page before
		})
	}
	room := NewRoom(int(cmp.Or(min(r.GetPageSize(), MaxItems), MaxItems)))
	for i := first; i < len(items); i++ {
		if room.Full() {
			return out, Token(filter, []byte(key(&items[i-1]))), nil
		}
		m := message(&items[i])
		room.Take(m)
		out = append(out, m)
	}
	return out, "", nil
}
