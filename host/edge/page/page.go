// Package page splits the responses of listings into pages that every client
// accepts. A gRPC client rejects messages over 4 MiB unless it is configured
// otherwise, so a page is limited in bytes as well as in items, and a token says
// where the next page starts.
//
// The package keeps nothing between two calls and starts no goroutine: a token
// contains the place where a page ended, not a reference to state on the node.
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
	// Bytes is the size at which a page ends; the item that reaches this
	// size is still included. No item is larger than 1 MiB.
	Bytes = 1 << 20
	// MaxItems is the maximum number of items of a page if its listing has no
	// smaller limit.
	MaxItems = 4096
	// MaxAnswer is the maximum size of a response. gRPC clients accept 4 MiB
	// including headers and trailers.
	MaxAnswer = 3 << 20
)

// Room is the remaining space of a page. It must be used by one goroutine.
type Room struct {
	items, bytes int
}

// NewRoom returns the room of an empty page of at most items items.
func NewRoom(items int) *Room { return &Room{items: items, bytes: Bytes} }

// Full reports whether the page has ended.
func (r *Room) Full() bool { return r.items <= 0 || r.bytes <= 0 }

// Items returns how many more items may be added.
func (r *Room) Items() int { return r.items }

// Bytes returns after how many more bytes the page ends.
func (r *Room) Bytes() int { return r.bytes }

// Take counts an item that is added.
func (r *Room) Take(item proto.Message) {
	r.items--
	r.bytes -= proto.Size(item)
}

// Filter hashes the filter of a listing, so that a token is rejected by a
// listing with a different filter.
func Filter(parts ...string) uint32 {
	h := fnv.New32a()
	for _, part := range parts {
		h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(part))))
		h.Write([]byte(part))
	}
	return h.Sum32()
}

// Token encodes a place of a listing as an opaque token.
func Token(filter uint32, place []byte) string {
	return base64.RawURLEncoding.EncodeToString(append(binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(place)), filter), place...))
}

// Parse returns the place in a token of a listing with the filter. It fails with
// ErrToken for any other token.
func Parse(token string, filter uint32) ([]byte, error) {
	b, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(b) < 4 || binary.BigEndian.Uint32(b) != filter {
		return nil, ErrToken
	}
	return b[4:], nil
}

// ErrToken: the page token belongs to a different listing.
var ErrToken = status.Argument("the page token does not belong to this list")

// request is the part of a request that asks for a page. Size 0 requests as many
// items as fit.
type request interface {
	GetPageSize() uint32
	GetPageToken() string
}

// Of returns a page of items that are all in memory, and the token of the next
// page, which is empty at the end. The items must be in ascending order of their
// keys, which must be unique. Only the items of the page are converted to
// messages. If items are added or removed between two pages, no other item is
// duplicated or omitted, because the next page continues after the key of the
// last item.
func Of[T any, M proto.Message](r request, filter uint32, items []T, key func(*T) string, message func(*T) M) (out []M, next string, err error) {
	first := 0
	if token := r.GetPageToken(); token != "" {
		place, err := Parse(token, filter)
		if err != nil {
			return nil, "", err
		}
		after := string(place)
		first, _ = slices.BinarySearchFunc(items, after, func(item T, after string) int {
			return cmp.Or(strings.Compare(key(&item), after), -1) // the item itself was on the previous page
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
