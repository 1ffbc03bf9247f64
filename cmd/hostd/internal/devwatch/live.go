// Package devwatch keeps the module of a project in service while its author
// works on it: when its sources change, it builds the project, checks the
// module against the contract and against stored entities, and makes the nodes
// serve it. If a step fails, the previous module remains in service. Meanwhile
// it shows the log lines of the guests.
//
// A Live owns the goroutines of its watcher and, during Run, one for each
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
	Dir   string // the project's
	Talk  io.Writer
	Paint cli.Paint
	// Dial connects to the running nodes; its caller closes the session. It is
	// called for each use, because nodes may be restarted at other addresses.
	Dial func(ctx context.Context) (*cli.Session, error)
}

// Live keeps one project in service.
type Live struct {
	Options
	watcher *watcher
	began   time.Time
	again   chan struct{} // one slot: a build was requested

	mu       sync.Mutex
	serving  string   // digest of the module that the nodes serve
	digests  []string // digests of uploaded modules that may be removed
	types    []string // types whose log lines are shown
	newTypes chan struct{}
}

// New starts to watch a project. Close stops it.
func New(o Options) (*Live, error) {
	language, err := guestbuild.Find(o.Dir)
	if err != nil {
		return nil, err
	}
	l := &Live{Options: o, began: time.Now(), again: make(chan struct{}, 1), newTypes: make(chan struct{}, 1)}
	l.watcher, err = newWatcher(o.Dir, language.Sources, func(err error) { l.say("%s\n", o.Paint.Bad(err.Error())) })
	return l, err
}

// Close stops watching. Run must have returned.
func (l *Live) Close() error { return l.watcher.close() }

// Again makes Run build the project although nothing has changed.
func (l *Live) Again() {
	select {
	case l.again <- struct{}{}:
	default:
	}
}

// Run builds the project whenever its sources change, and shows the log lines
// of its guests, until ctx ends.
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

// Update builds the project, makes the nodes serve it, and reports whether
// they serve it. If they do not, Update prints the reason, and the nodes
// continue to serve the previous module.
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
		l.say("%s\n", l.Paint.Note(short(l.serving)+" continues to serve; save a change to try again"))
	} else {
		l.say("%s\n", l.Paint.Note("no module of this project is active; save a change to try again"))
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
		l.say("%s\n", l.Paint.Note("the module is unchanged: "+short(report.Digest)+" continues to serve"))
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
	l.say("%s\n", l.Paint.Good(fmt.Sprintf("%s serves %s, %s after the change was detected", short(report.Digest), strings.Join(report.EntityTypes, ", "), took(began))))
	l.prune(ctx, s, report.Digest)
	return nil
}

// serve uploads a module, checks it against stored entities and activates it.
func (l *Live) serve(ctx context.Context, s *cli.Session, wasm []byte, digest string, types []string) error {
	if _, err := client.UploadModule(ctx, s.Client, &modulev1.UploadModuleRequest{Wasm: wasm}); err != nil {
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
	up, err := client.UploadModule(ctx, s.Client, &modulev1.UploadModuleRequest{Wasm: wasm, Activate: true})
	if err != nil {
		return err
	}
	for _, remark := range up.GetWarnings() {
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

// verify replays the stored entities of a type with the module. It fails if the
// module fails on an entity. If the module gives an existing entity a different
// state, verify only reports it, because that is often intended during
// development.
func (l *Live) verify(ctx context.Context, s *cli.Session, entityType, digest string) error {
	if active, err := s.ActiveModule(ctx, entityType); err != nil || active.GetModule().GetDigest() == digest {
		return nil // no other module serves the type, so there is nothing to compare with
	}
	var last *modulev1.VerifyModuleResponse
	var first, fault *modulev1.VerifyModuleResponse_Difference
	for m, err := range cli.Stream(ctx, s.ModuleService.VerifyModule, &modulev1.VerifyModuleRequest{EntityType: entityType, Digest: digest, Scope: &modulev1.VerifyModuleRequest_All{All: true}}) {
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
			fault.GetEntityId(), fault.GetSequence(), fault.GetDescription()), "Let the module read the stored events, or remove the data with --clean.")
	}
	l.say("verified %s: %d entities, %d events\n", entityType, last.GetEntities(), last.GetEvents())
	if first != nil {
		l.say("%s\n", l.Paint.Warn(fmt.Sprintf("%d of them have a different state than before, such as %s at event %d: %s", max(1, last.GetDifferingEntities()),
			cli.Clean(first.GetEntityId()), first.GetSequence(), cli.Quote(first.GetDescription()))))
	}
	return nil
}

// prune removes modules that were uploaded here and are no longer needed,
// because nodes accept only a limited number from one uploader. Nodes keep the
// modules that a rollback may return to. A failure does not affect the module
// in service.
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

// sayFault prints why the project is not served. The error may contain the
// output of guests, so each line is escaped, here and only here.
func (l *Live) sayFault(err error) { l.say("%s\n", l.Paint.Bad(cli.Quote(err.Error()))) }

// say writes with a single call, so that the output of several goroutines is
// not mixed.
func (l *Live) say(format string, args ...any) { fmt.Fprintf(l.Talk, format, args...) }

func took(began time.Time) time.Duration { return time.Since(began).Round(time.Millisecond) }

// short abbreviates a digest for people.
func short(digest string) string { return digest[:min(12, len(digest))] }
