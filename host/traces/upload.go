package traces

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/hostd/hostd/host/files"
)

// Limits of an upload to the collector.
const (
	firstRetry   = time.Second // doubles with each retry
	longestRetry = 15 * time.Second
	mostAnswer   = 4 << 10 // bytes that are read of a response
)

// uploader posts spans to a collector by OTLP over HTTP. OpenTelemetry's own
// client does the same, but links gRPC, because it takes the messages from the
// package of the gRPC service, and reads responses of any length.
type uploader struct {
	url     string
	headers map[string]string
	http    *http.Client
	life    context.Context // ends with Stop
	stop    context.CancelFunc
}

// newUploader returns an uploader. If OTEL_EXPORTER_OTLP_CERTIFICATE or its
// form for traces is set, only the authorities in that file are trusted.
func newUploader(url string, headers map[string]string) (*uploader, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	for _, name := range []string{"OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", "OTEL_EXPORTER_OTLP_CERTIFICATE"} {
		path := os.Getenv(name)
		if path == "" {
			continue
		}
		text, _, err := files.Regular(path, mostFileBytes)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		trusted := x509.NewCertPool()
		if !trusted.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s: %s has no certificate in PEM", name, path)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS12}
		break
	}
	u := &uploader{url: url, headers: headers, http: &http.Client{Transport: transport, Timeout: sendTimeout}}
	u.life, u.stop = context.WithCancel(context.Background())
	return u, nil
}

// Start implements otlptrace.Client.
func (u *uploader) Start(context.Context) error { return nil }

// Stop implements otlptrace.Client. It cancels the current upload, and fails
// later ones.
func (u *uploader) Stop(context.Context) error {
	u.stop()
	u.http.CloseIdleConnections()
	return nil
}

// UploadTraces implements otlptrace.Client. It retries until ctx is done if the
// collector is overloaded or unreachable for a moment.
func (u *uploader) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	// TracesData has the same bytes as the request ExportTraceServiceRequest.
	body, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: spans})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(u.life, cancel)()
	for pause := firstRetry; ; pause = min(2*pause, longestRetry) {
		after, err := u.post(ctx, body)
		if err == nil || after < 0 || ctx.Err() != nil {
			return err
		}
		wait := time.NewTimer(max(after, pause))
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return err
		}
	}
}

// post makes one attempt. If it fails, after is the time that the collector
// wants callers to wait before the next one; it is negative if a retry cannot
// help.
func (u *uploader) post(ctx context.Context, body []byte) (after time.Duration, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.url, bytes.NewReader(body))
	if err != nil {
		return -1, err
	}
	req.Header.Set("User-Agent", "hostd")
	for name, value := range u.headers {
		req.Header.Set(name, value)
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	res, err := u.http.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(res.Body, mostAnswer))
	switch {
	case res.StatusCode >= 200 && res.StatusCode < 300:
		if err == nil && res.Header.Get("Content-Type") == "application/x-protobuf" {
			err = rejected(answer)
		}
		return -1, err
	case res.StatusCode == http.StatusTooManyRequests, res.StatusCode == http.StatusBadGateway, res.StatusCode == http.StatusServiceUnavailable, res.StatusCode == http.StatusGatewayTimeout:
		if seconds, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil && seconds >= 0 && seconds < 3600 {
			after = time.Duration(seconds) * time.Second
		}
	default:
		after = -1
	}
	return after, fmt.Errorf("the collector answers %s: %s", res.Status, strings.TrimSpace(strings.ToValidUTF8(string(answer), "")))
}

// rejected returns an error if an answer, of the type
// ExportTraceServiceResponse, says that the collector rejected some spans.
func rejected(answer []byte) error {
	partial, err := fields(answer)
	if err != nil || partial[1].bytes == nil {
		return err
	}
	said, err := fields(partial[1].bytes)
	if err != nil || said[1].number == 0 && len(said[2].bytes) == 0 {
		return err
	}
	return fmt.Errorf("the collector rejected %d spans: %s", said[1].number, strings.ToValidUTF8(string(said[2].bytes), ""))
}

type field struct {
	number uint64
	bytes  []byte
}

// fields returns the varints and byte strings of a message.
func fields(message []byte) (map[protowire.Number]field, error) {
	out := map[protowire.Number]field{}
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return nil, errors.New("the collector's answer is not OTLP")
		}
		message = message[n:]
		var f field
		switch kind {
		case protowire.VarintType:
			f.number, n = protowire.ConsumeVarint(message)
		case protowire.BytesType:
			f.bytes, n = protowire.ConsumeBytes(message)
		default:
			n = protowire.ConsumeFieldValue(number, kind, message)
		}
		if n < 0 {
			return nil, errors.New("the collector's answer is not OTLP")
		}
		out[number], message = f, message[n:]
	}
	return out, nil
}
