package plainhttp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// call is a request of the API that is made of another request.
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

// lazy is a body that is made when it is first read: what a caller sends is not
// read before the call has been let in.
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

// Budget is what the bytes of requests are charged to, such as an
// *admission.Waiting.
type Budget interface {
	// Take charges n bytes, or fails without charging any.
	Take(n int64) error
	// Give ends the charge of n bytes.
	Give(n int64)
}

// content is the body of a request as the last field of a message. Its length
// stands before it: if the request does not say it, the body is read into
// memory first, which is charged.
type content struct {
	h       *Handler
	r       *http.Request
	charged int64 // bytes that are charged
}

// after appends the body to a message, as its field data.
func (c *content) after(m proto.Message) (io.Reader, error) {
	head, err := proto.Marshal(m)
	if err != nil {
		return nil, err
	}
	head = protowire.AppendTag(head, m.ProtoReflect().Descriptor().Fields().ByName("data").Number(), protowire.BytesType)
	if c.r.Body == nil || c.r.ContentLength == 0 {
		return bytes.NewReader(protowire.AppendVarint(head, 0)), nil
	}
	if n := c.r.ContentLength; n > 0 {
		return io.MultiReader(bytes.NewReader(protowire.AppendVarint(head, uint64(n))), c.r.Body), nil
	}
	data, err := c.whole()
	if err != nil {
		return nil, err
	}
	return io.MultiReader(bytes.NewReader(protowire.AppendVarint(head, uint64(len(data)))), bytes.NewReader(data)), nil
}

// whole reads the body. One over the bound is read no further: the bound of the
// call, which is no larger, refuses it.
func (c *content) whole() ([]byte, error) {
	var data []byte
	for body := io.LimitReader(c.r.Body, int64(c.h.opts.MaxBytes)+1); ; {
		if len(data) == cap(data) {
			size := max(2*cap(data), 512)
			if c.h.opts.Budget != nil {
				if err := c.h.opts.Budget.Take(int64(size - cap(data))); err != nil {
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
		c.h.opts.Budget.Give(c.charged)
	}
}

// answer is what a call was answered. It is the caller's connection to whoever
// sets its deadlines.
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

// Flush implements http.Flusher; everything is written at the end.
func (a *answer) Flush() {}

// Unwrap is for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.conn }

// errTag is of a precondition that is none of an entity.
var errTag = errors.New(`the tag of an entity is its sequence in quotes, such as "3"`)

// sequenceOf reads the tag of an entity.
func sequenceOf(tag string) (uint64, error) {
	inner, ok := strings.CutPrefix(tag, `"`)
	inner, closed := strings.CutSuffix(inner, `"`)
	sequence, err := strconv.ParseUint(inner, 10, 63)
	if !ok || !closed || err != nil || inner != strconv.FormatUint(sequence, 10) {
		return 0, errTag
	}
	return sequence, nil
}

// tag is the tag of an entity at a sequence.
func tag(sequence uint64) string { return `"` + strconv.FormatUint(sequence, 10) + `"` }

// expected is the sequence at which a command wants its entity: that of
// If-Match, or none at all with If-None-Match: *.
func expected(r *http.Request) (*uint64, error) {
	match, none := r.Header.Values("If-Match"), r.Header.Values("If-None-Match")
	switch {
	case len(match)+len(none) == 0:
		return nil, nil
	case len(match)+len(none) > 1:
		return nil, errors.New("give one of If-Match and If-None-Match, once")
	case len(none) == 1 && strings.TrimSpace(none[0]) == "*":
		return new(uint64), nil
	case len(none) == 1:
		return nil, errors.New("a command takes If-None-Match: * alone, for an entity that is new")
	}
	sequence, err := sequenceOf(strings.TrimSpace(match[0]))
	if err != nil {
		return nil, fmt.Errorf("If-Match: %w", err)
	}
	return &sequence, nil
}
