package plainhttp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// call makes an API request for procedure from a request to a plain path. It
// keeps the caller's context, headers and connection, and replaces the method,
// the path and the body.
func call(r *http.Request, procedure, contentType string, body io.Reader) *http.Request {
	inner := r.Clone(r.Context())
	inner.Method = http.MethodPost
	inner.URL = &url.URL{Scheme: r.URL.Scheme, Host: r.URL.Host, Path: procedure}
	inner.RequestURI = procedure
	for _, name := range []string{"Content-Length", "Transfer-Encoding", "Accept-Encoding", "Connect-Accept-Encoding", "Connect-Content-Encoding", "Expect", "If-Match", "If-None-Match", "Last-Event-Id"} {
		inner.Header.Del(name)
	}
	inner.Header.Set("Content-Type", contentType)
	inner.ContentLength, inner.TransferEncoding = -1, nil
	inner.Body = io.NopCloser(body)
	return inner
}

// lazy is a body that is made when it is first read, so that nothing of the
// caller's body is read before the call was admitted.
type lazy struct {
	make func() (io.Reader, error)
	rest io.Reader
	err  error
}

func (l *lazy) Read(p []byte) (int, error) {
	if l.rest == nil && l.err == nil {
		l.rest, l.err = l.make()
	}
	if l.err != nil {
		return 0, l.err
	}
	return l.rest.Read(p)
}

// byteBudget is charged for the bytes of requests, each for the caller of its
// context.
type byteBudget interface {
	// Take charges n bytes, or fails and charges none.
	Take(ctx context.Context, n int64) error
	// Give ends the charge of n bytes.
	Give(ctx context.Context, n int64)
}

// content passes the body of a request on as the last field of a message.
// The field's length must precede the body, so a body of unknown length is
// first read into memory, and charged.
type content struct {
	h       *handler
	r       *http.Request
	twice   bool // the body may be needed for another attempt
	data    []byte
	charged int64 // the bytes charged for data
}

// after returns the encoded message m followed by the body as its field data.
func (c *content) after(m proto.Message) (io.Reader, error) {
	head, err := proto.Marshal(m)
	if err != nil {
		return nil, err
	}
	head = protowire.AppendTag(head, m.ProtoReflect().Descriptor().Fields().ByName("data").Number(), protowire.BytesType)
	if c.r.Body == nil || c.r.ContentLength == 0 {
		return bytes.NewReader(protowire.AppendVarint(head, 0)), nil
	}
	if n := c.r.ContentLength; n > 0 && !c.twice {
		return io.MultiReader(bytes.NewReader(protowire.AppendVarint(head, uint64(n))), c.r.Body), nil
	}
	if c.data == nil {
		if c.data, err = c.whole(); err != nil {
			return nil, err
		}
	}
	data := c.data
	return io.MultiReader(bytes.NewReader(protowire.AppendVarint(head, uint64(len(data)))), bytes.NewReader(data)), nil
}

// whole reads the body, but at most one byte more than the limit. The API
// call rejects such a longer body, because the limit of the call is not
// larger.
func (c *content) whole() ([]byte, error) {
	var data []byte
	for body := io.LimitReader(c.r.Body, int64(c.h.opts.MaxBytes)+1); ; {
		if len(data) == cap(data) {
			size := max(2*cap(data), 512)
			if c.h.opts.Budget != nil {
				if err := c.h.opts.Budget.Take(c.r.Context(), int64(size-cap(data))); err != nil {
					return nil, err
				}
				c.charged += int64(size - cap(data))
			}
			data = append(make([]byte, 0, size), data...)
		}
		n, err := body.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		if err == io.EOF {
			return data, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// end ends the charge.
func (c *content) end() {
	if c.charged > 0 {
		c.h.opts.Budget.Give(c.r.Context(), c.charged)
	}
}

// answer records the response to an API call. It unwraps to the caller's
// connection, so that deadlines can be set.
type answer struct {
	conn   http.ResponseWriter
	header http.Header
	status int
	body   bytes.Buffer
}

func newAnswer(conn http.ResponseWriter) *answer {
	return &answer{conn: conn, header: http.Header{}}
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

func (a *answer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(p)
}

// Flush implements http.Flusher. It does nothing, because the response is
// written at the end.
func (a *answer) Flush() {}

// Unwrap is called by http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.conn }

// errTag is the error for a precondition that is not a tag of an entity.
var errTag = errors.New(`the ETag of an entity is its sequence in quotes, such as "3"`)

// preconditions is the value of If-Match or If-None-Match: any tag, or a list of
// sequences. Weak tags are treated as strong ones, because a proxy that
// compresses responses makes our tags weak, and a sequence identifies the state
// rather than its bytes.
type preconditions struct {
	given     bool
	any       bool
	sequences []uint64
}

// match reports whether one of the tags is the tag of the sequence.
func (p preconditions) match(sequence uint64) bool {
	return p.any || slices.Contains(p.sequences, sequence)
}

// maxTags limits the number of tags in a header.
const maxTags = 64

// preconditionsOf parses a header of tags.
// https://www.rfc-editor.org/rfc/rfc9110#section-13.1
func preconditionsOf(r *http.Request, name string) (p preconditions, err error) {
	values := r.Header.Values(name)
	if len(values) == 0 {
		return p, nil
	}
	p.given = true
	list := strings.Split(strings.Join(values, ","), ",")
	if len(list) > maxTags {
		return p, fmt.Errorf("%s: at most %d ETags are allowed", name, maxTags)
	}
	for _, one := range list {
		one = strings.Trim(one, " \t")
		if one == "*" && len(list) == 1 {
			p.any = true
			return p, nil
		}
		inner, opened := strings.CutPrefix(strings.TrimPrefix(one, "W/"), `"`)
		inner, closed := strings.CutSuffix(inner, `"`)
		if !opened || !closed || strings.Contains(inner, `"`) {
			return p, fmt.Errorf("%s: %w", name, errTag)
		}
		// A tag in a different format matches nothing.
		if n, err := strconv.ParseUint(inner, 10, 63); err == nil && inner == strconv.FormatUint(n, 10) {
			p.sequences = append(p.sequences, n)
		}
	}
	return p, nil
}

// tag returns the tag of an entity at a sequence.
func tag(sequence uint64) string { return `"` + strconv.FormatUint(sequence, 10) + `"` }

// expectation says at which sequences a command may find its entity: at any, or
// at one of several, where 0 means that the entity must not exist.
type expectation struct {
	preconditions
	// next is the expected sequence of the next attempt; nil for none.
	next *uint64
	left int // attempts left
}

// maxAttempts limits how often a command that accepts several sequences is
// sent.
const maxAttempts = 8

// parsePreconditions parses If-Match, or If-None-Match: *.
func parsePreconditions(r *http.Request) (e expectation, err error) {
	match, err := preconditionsOf(r, "If-Match")
	if err != nil {
		return e, err
	}
	none, err := preconditionsOf(r, "If-None-Match")
	switch {
	case err != nil:
		return e, err
	case match.given && none.given:
		return e, errors.New("set only one of If-Match and If-None-Match")
	case none.any:
		return expectation{next: new(uint64)}, nil
	case none.given:
		return e, errors.New("If-None-Match must be * for a command, which then requires that the entity does not exist")
	case !match.given:
		return e, nil
	}
	e = expectation{preconditions: match, left: maxAttempts - 1}
	first := uint64(1) // for "*": an existing entity has a sequence of at least 1
	if !match.any {
		if len(match.sequences) == 0 {
			return e, fmt.Errorf("If-Match: %w", errTag)
		}
		first = match.sequences[0]
	}
	if e.next = &first; len(match.sequences) == 1 {
		e.left = 0
	}
	return e, nil
}

// again reports whether the command may be sent again with the actual
// sequence of its entity, and sets next to that sequence.
func (e *expectation) again(actual string) bool {
	at, err := strconv.ParseUint(actual, 10, 63)
	if err != nil || at == 0 || e.left == 0 || !e.match(at) {
		return false
	}
	e.left--
	e.next = &at
	return true
}
