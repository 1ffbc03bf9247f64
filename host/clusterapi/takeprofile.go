package clusterapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/pprof"
	"net/url"
	"runtime"
	"sync"
	"time"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/host/modules"
	"github.com/hostd/hostd/host/status"
)

// blockRate is the sampling rate of block profiles: one sample per so many
// nanoseconds of blocking. A smaller value would cost more than a few percent of
// the processor.
const blockRate = 10_000

// mostProfileBytes limits the size of a profile. A profile of a hundred thousand
// goroutines has a few MiB.
const mostProfileBytes = 32 << 20

var errProfileSize = errors.New("the profile exceeds the size limit")

// taking is held while a profile is taken, because a process has only one
// profiler.
var taking sync.Mutex

// takeProfile returns a profile of this process in pprof format. A CPU or block
// profile covers the duration, rounded up to whole seconds. If ctx ends,
// takeProfile returns its error.
func takeProfile(ctx context.Context, kind clusterv1.ProfileNodeRequest_Kind, duration time.Duration) ([]byte, error) {
	if !taking.TryLock() {
		return nil, modules.ErrProfiling
	}
	defer taking.Unlock()
	var serve http.Handler
	query := url.Values{}
	switch kind {
	case clusterv1.ProfileNodeRequest_KIND_CPU:
		serve = http.HandlerFunc(pprof.Profile)
	case clusterv1.ProfileNodeRequest_KIND_HEAP:
		serve = pprof.Handler("heap")
	case clusterv1.ProfileNodeRequest_KIND_GOROUTINE:
		serve = pprof.Handler("goroutine")
	case clusterv1.ProfileNodeRequest_KIND_BLOCK:
		runtime.SetBlockProfileRate(blockRate)
		defer runtime.SetBlockProfileRate(0)
		serve = pprof.Handler("block")
	default:
		return nil, status.Argument("unknown kind of profile")
	}
	if lasts(kind) {
		query.Set("seconds", fmt.Sprint(int64((duration+time.Second-1)/time.Second)))
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "/?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	var w profileAnswer
	if serve.ServeHTTP(&w, r); ctx.Err() != nil {
		return nil, ctx.Err()
	}
	switch {
	case w.full:
		return nil, errProfileSize
	case w.code != 0 && w.code != http.StatusOK:
		return nil, fmt.Errorf("the profiler returned status %d: %s", w.code, w.body.String())
	}
	return w.body.Bytes(), nil
}

// lasts reports whether a kind of profile covers a period of time.
func lasts(kind clusterv1.ProfileNodeRequest_Kind) bool {
	return kind == clusterv1.ProfileNodeRequest_KIND_CPU || kind == clusterv1.ProfileNodeRequest_KIND_BLOCK
}

// profileAnswer collects the output of a handler, up to mostProfileBytes.
type profileAnswer struct {
	header http.Header
	code   int
	body   bytes.Buffer
	full   bool
}

// Header implements http.ResponseWriter.
func (a *profileAnswer) Header() http.Header {
	if a.header == nil {
		a.header = http.Header{}
	}
	return a.header
}

// WriteHeader implements http.ResponseWriter.
func (a *profileAnswer) WriteHeader(code int) { a.code = code }

// Write implements http.ResponseWriter.
func (a *profileAnswer) Write(b []byte) (int, error) {
	if a.body.Len()+len(b) > mostProfileBytes {
		a.full = true
		return 0, errProfileSize
	}
	return a.body.Write(b)
}
