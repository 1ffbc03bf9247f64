// Package devwatch keeps the module of a project that somebody works on in
// service: it builds it when its sources change, holds it to the contract and
// to what is stored, and has the nodes serve it. What fails leaves the module
// before it in service. It shows what the guests write meanwhile.
//
// A Live owns the goroutines of its watcher and, while Run runs, one for each
// entity type; Run and Close wait for them.
package devwatch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hostd/hostd/api/client"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/cmd/hostd/internal/guestbuild"
	"github.com/hostd/hostd/cmd/hostd/internal/project"
)

// Options of a Live. All are required.
type Options struct {
	Dir   string // of the project
	Talk  io.Writer
	Paint cli.Paint
	// Dial connects to the nodes that run; the caller of it closes what it
	// returns. Nodes may come back elsewhere: it is asked each time.
	Dial func(ctx context.Context) (*cli.Session, error)
}

// Live keeps one project in service.
type Live struct {
	Options
	watcher *watcher
	began   time.Time
	again   chan struct{} // holds one: somebody wants it built

	mu       sync.Mutex
	serving  string   // the digest of what the nodes serve of it
	digests  []string // of what was uploaded, and may be removed
	types    []string // whose lines are followed
	newTypes chan struct{}
}

// New begins to watch a project. Close ends it.
func New(o Options) (*Live, error) {
	language, err := guestbuild.Find(o.Dir)
	if err != nil {
		return nil, err
	}
	l := &Live{Options: o, began: time.Now(), again: make(chan struct{}, 1), newTypes: make(chan struct{}, 1)}
	l.watcher, err = newWatcher(o.Dir, language.Sources, func(err error) { l.say("%s\n", o.Paint.Bad(err.Error())) })
	return l, err
}

// Close ends the watching; Run has to have returned.
func (l *Live) Close() error { return l.watcher.close() }

// Again has Run build the project although nothing has changed.
func (l *Live) Again() {
	select {
	case l.again <- struct{}{}:
	default:
	}
}

// Run builds the project each time that its sources change, and shows what its
// guests write, until ctx ends.
func (l *Live) Run(ctx context.Context) {
	var tails sync.WaitGroup
	defer tails.Wait()
	following := map[string]bool{}
	for {
		l.mu.Lock()
		for _, t := range l.types {
			if !following[t] {
				following[t] = true
				tails.Go(func() { l.follow(ctx, t) })
			}
		}
		l.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-l.newTypes:
			continue
		case <-l.watcher.changed:
		case <-l.again:
		}
		l.Update(ctx)
	}
}

// Update builds the project and has the nodes serve it, and reports whether
// they do. It says why where they do not, and what they served before goes on
// serving.
func (l *Live) Update(ctx context.Context) bool {
	began := time.Now()
	err := l.update(ctx, began)
	if err == nil {
		return true
	}
	if ctx.Err() != nil {
		return false
	}
	l.sayFault(err)
	if next := cli.NextStep(err); next != "" {
		l.say("%s\n", next)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.serving != "" {
		l.say("%s\n", l.Paint.Note(short(l.serving)+" goes on serving; save a change to try again"))
	} else {
		l.say("%s\n", l.Paint.Note("nothing of this project is served; save a change to try again"))
	}
	return false
}

func (l *Live) update(ctx context.Context, began time.Time) (err error) {
	l.say("%s\n", l.Paint.Note("building "+l.Dir))
	scratch, err := os.MkdirTemp("", "hostd-dev-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	file := filepath.Join(scratch, "module.wasm")
	report, err := project.Build(ctx, l.Dir, file, l.Talk)
	if err != nil {
		return err
	}
	if report.Digest == l.servingNow() {
		l.say("%s\n", l.Paint.Note("the module is the same: "+short(report.Digest)+" goes on serving"))
		return nil
	}
	l.say("built after %s: %s\n", took(began), project.Summary(report))
	wasm, err := cli.ReadModule(file)
	if err != nil {
		return err
	}
	s, err := l.Dial(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := l.serve(ctx, s, wasm, report.Digest, report.EntityTypes); err != nil {
		return err
	}
	l.say("%s\n", l.Paint.Good(fmt.Sprintf("%s serves %s, %s after the change was seen", short(report.Digest), strings.Join(report.EntityTypes, ", "), took(began))))
	l.prune(ctx, s, report.Digest)
	return nil
}

// serve uploads a module, holds it to what is stored and activates it.
func (l *Live) serve(ctx context.Context, s *cli.Session, wasm []byte, digest string, types []string) error {
	if _, err := client.UploadModule(ctx, s.Client, &modulev1.UploadRequest{Wasm: wasm}); err != nil {
		return err
	}
	l.mu.Lock()
	if !slices.Contains(l.digests, digest) {
		l.digests = append(l.digests, digest)
	}
	l.mu.Unlock()
	for _, t := range types {
		if err := l.verify(ctx, s, t, digest); err != nil {
			return err
		}
	}
	up, err := client.UploadModule(ctx, s.Client, &modulev1.UploadRequest{Wasm: wasm, Activate: true})
	if err != nil {
		return err
	}
	for _, remark := range up.GetRemarks() {
		l.say("note: %s\n", cli.Clean(remark))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.serving = digest
	for _, t := range up.GetEntityTypes() {
		if !slices.Contains(l.types, t) {
			l.types = append(l.types, t)
		}
	}
	select {
	case l.newTypes <- struct{}{}:
	default:
	}
	return nil
}

// verify replays what is stored of a type with the module. That it fails on an
// entity is a failure. Another state than the module before makes is told: the
// form of a state changes while somebody works on it.
func (l *Live) verify(ctx context.Context, s *cli.Session, entityType, digest string) error {
	if active, err := s.ActiveModule(ctx, entityType); err != nil || active.GetModule().GetDigest() == digest {
		return nil // nothing serves the type, or this does: there is nothing to compare with
	}
	var last *modulev1.VerifyResponse
	var first, fault *modulev1.VerifyResponse_Difference
	for m, err := range cli.Stream(ctx, s.ModuleService.Verify, &modulev1.VerifyRequest{EntityType: entityType, Digest: digest, Scope: &modulev1.VerifyRequest_All{All: true}}) {
		if err != nil {
			return fmt.Errorf("verify %s: %w", entityType, err)
		}
		last = m
		for _, d := range m.GetDifferences() {
			if d.GetFault() && fault == nil {
				fault = d
			} else if !d.GetFault() && first == nil {
				first = d
			}
		}
	}
	if fault != nil {
		return cli.Hint(fmt.Errorf("the module fails on %d of %d entities of %s: %s at event %d: %s", max(1, last.GetFaultyEntities()), last.GetEntities(), entityType,
			fault.GetEntityId(), fault.GetSequence(), fault.GetDescription()), "Have it read the events of before, or begin anew with --clean.")
	}
	l.say("verified %s: %d entities, %d events\n", entityType, last.GetEntities(), last.GetEvents())
	if first != nil {
		l.say("%s\n", l.Paint.Warn(fmt.Sprintf("%d of them have another state than before, such as %s at event %d: %s", max(1, last.GetDifferingEntities()),
			cli.Clean(first.GetEntityId()), first.GetSequence(), cli.Quote(first.GetDescription()))))
	}
	return nil
}

// prune removes what was uploaded here and nothing needs any more: nodes take
// so many modules of one uploader and no more. What a rollback may come back to
// they keep. A failure says nothing of the module that serves.
func (l *Live) prune(ctx context.Context, s *cli.Session, serving string) {
	modules, err := s.Modules(ctx)
	if err != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range modules {
		if d := m.GetDigest(); d != serving && m.GetUnusedSince() != nil && slices.Contains(l.digests, d) {
			if client.RemoveModule(ctx, s.Client, d) == nil {
				l.digests = slices.DeleteFunc(l.digests, func(other string) bool { return other == d })
			}
		}
	}
}

func (l *Live) servingNow() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.serving
}

// sayFault says why the project is not served. What guests have written is part
// of it, so each line is cleaned, here and nowhere before.
func (l *Live) sayFault(err error) { l.say("%s\n", l.Paint.Bad(cli.Quote(err.Error()))) }

// say writes in one call, so that what several goroutines say is not mixed.
func (l *Live) say(format string, args ...any) { fmt.Fprintf(l.Talk, format, args...) }

func took(began time.Time) time.Duration { return time.Since(began).Round(time.Millisecond) }

// short is a digest for people.
func short(digest string) string { return digest[:min(12, len(digest))] }
