package client

import (
	"net/http"
	"strings"
	"time"

	"github.com/hostd/hostd/api/wire"
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

// envelopeDoer sends requests, and sends each message of a stream as one piece:
// its prefix and its bytes are written one after the other, and would leave in
// a frame and a system call each.
type envelopeDoer struct{ http *http.Client }

func (d envelopeDoer) Do(r *http.Request) (*http.Response, error) {
	if r.Body != nil && strings.HasPrefix(r.Header.Get("Content-Type"), "application/connect+") {
		r.Body = &wire.Envelopes{Body: r.Body}
	}
	return d.http.Do(r)
}
