package client

import (
	"io"
	"net/http"
	"strings"
	"time"
)

// newTransport speaks HTTP/2 without TLS, or with it for https. Pings find a
// peer that is gone or stopped without closing its connections.
func newTransport() *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Transport{
		Protocols:       protocols,
		IdleConnTimeout: 30 * time.Second,
		HTTP2: &http.HTTP2Config{
			SendPingTimeout:               2 * time.Second,
			PingTimeout:                   2 * time.Second,
			WriteByteTimeout:              5 * time.Second,
			MaxReceiveBufferPerStream:     1 << 20,
			MaxReceiveBufferPerConnection: 8 << 20,
		},
	}
}

// envelopeDoer sends requests, and sends each message of a stream as one piece.
type envelopeDoer struct{ http *http.Client }

func (d envelopeDoer) Do(r *http.Request) (*http.Response, error) {
	if r.Body != nil && strings.HasPrefix(r.Header.Get("Content-Type"), "application/connect+") {
		r.Body = &envelopeBody{body: r.Body}
	}
	return d.http.Do(r)
}

// envelopeBody joins the prefix of a message to what follows. They are written
// one after the other, and without the join each would leave in a frame and a
// system call of its own.
type envelopeBody struct {
	body   io.ReadCloser
	prefix [5]byte
	have   int // bytes of prefix that are read
	given  int // bytes of prefix that are handed out
	left   int // bytes of the message that follow
}

func (b *envelopeBody) Read(p []byte) (n int, err error) {
	if b.left == 0 && b.given == b.have {
		b.given, b.have = 0, 0
		if b.have, err = io.ReadFull(b.body, b.prefix[:]); err != nil {
			if b.have > 0 && err == io.ErrUnexpectedEOF {
				err = io.EOF
			}
			n = copy(p, b.prefix[:b.have])
			b.given = b.have
			return n, err
		}
		b.left = int(b.prefix[1])<<24 | int(b.prefix[2])<<16 | int(b.prefix[3])<<8 | int(b.prefix[4])
	}
	n = copy(p, b.prefix[b.given:b.have])
	b.given += n
	if p = p[n:]; len(p) == 0 || b.left == 0 {
		return n, nil
	}
	more, err := b.body.Read(p[:min(len(p), b.left)])
	b.left -= more
	return n + more, err
}

func (b *envelopeBody) Close() error { return b.body.Close() }
