package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"

	"github.com/hostd/hostd/api/client"
)

const composeFile = "../compose/compose.yaml"

// readCompose parses the compose file, which must match the schema of the
// Compose Specification.
func readCompose(t *testing.T) *types.Project {
	t.Helper()
	content, err := os.ReadFile(composeFile)
	if err != nil {
		t.Fatal(err)
	}
	details := types.ConfigDetails{WorkingDir: filepath.Dir(composeFile), ConfigFiles: []types.ConfigFile{{Filename: composeFile, Content: content}}, Environment: types.Mapping{}}
	project, err := loader.LoadWithContext(t.Context(), details)
	if err != nil {
		t.Fatal(err)
	}
	return project
}

func TestComposeFileIsValid(t *testing.T) {
	project := readCompose(t)
	for name, service := range project.Services {
		if !service.ReadOnly || !slices.Equal(service.CapDrop, []string{"ALL"}) || service.Image != "ghcr.io/hostd/hostd:0.2.0" {
			t.Errorf("%s: %+v", name, service)
		}
		if name[0] == 'n' && (service.StopGracePeriod == nil || service.HealthCheck == nil || len(service.DependsOn) != 4) {
			t.Errorf("%s: %+v", name, service)
		}
	}
	if len(project.Services) != 8 {
		t.Errorf("services %v", project.ServiceNames())
	}
}

// composition runs the services of a compose file.
type composition struct {
	*world
	project *types.Project
	done    map[string]bool
	pods    []*pod
}

// container returns the container of a service.
func (c *composition) container(name string) *container {
	c.t.Helper()
	s := c.project.Services[name]
	out := &container{name: name, uid: 65532, gid: 65532, argv: append([]string{"/usr/bin/hostd"}, s.Command...), env: []string{"PATH=/usr/bin"}}
	if s.StopGracePeriod != nil {
		out.grace = int(time.Duration(*s.StopGracePeriod).Seconds())
	}
	for key, value := range s.Environment {
		out.env = append(out.env, key+"="+*value)
	}
	for _, v := range s.Volumes {
		dir := filepath.Join(c.dir, "volumes", v.Source)
		// A container engine gives an empty volume the same owner as the image's
		// directory.
		if _, err := os.Stat(dir); err != nil {
			err := errors.Join(os.MkdirAll(dir, 0o700), os.Chown(dir, 65532, 65532))
			if v.Target != "/var/lib/hostd" || err != nil {
				c.t.Fatalf("%s mounts a new volume at %s, which the image doesn't have: %v", name, v.Target, err)
			}
		}
		out.mounts = append(out.mounts, mount{dir, v.Target, v.ReadOnly})
	}
	for _, at := range s.Tmpfs {
		dir := filepath.Join(c.dir, "tmpfs", name)
		if err := errors.Join(os.MkdirAll(dir, 0o777), os.Chmod(dir, 0o777)); err != nil {
			c.t.Fatal(err)
		}
		out.mounts = append(out.mounts, mount{dir, at, false})
	}
	return out
}

// complete runs a service that ends by itself, after the services on which it
// depends.
func (c *composition) complete(name string) {
	c.t.Helper()
	if c.done[name] {
		return
	}
	for _, before := range slices.Sorted(keysOf(c.project.Services[name].DependsOn)) {
		c.complete(before)
	}
	p := &pod{container: c.container(name), world: c.world, address: c.next, stopped: make(chan struct{}), gone: make(chan struct{})}
	if err := p.launch(); err != nil {
		c.t.Fatal(err)
	}
	if err := <-p.ends; err != nil {
		c.t.Fatalf("%s: %v", name, err)
	}
	c.done[name] = true
}

func keysOf[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// up starts the nodes and waits until they are healthy.
func (c *composition) up() []*pod {
	c.t.Helper()
	c.done = map[string]bool{}
	var pods []*pod
	for _, name := range []string{"n1", "n2", "n3"} {
		for _, before := range slices.Sorted(keysOf(c.project.Services[name].DependsOn)) {
			c.complete(before)
		}
		pods = append(pods, c.start(c.container(name), []string{name}, nil))
	}
	for _, p := range pods {
		c.healthy(p)
	}
	return pods
}

// healthy waits until the health check of a service succeeds.
func (c *composition) healthy(p *pod) {
	c.t.Helper()
	test := c.project.Services[p.name].HealthCheck.Test
	if test[0] != "CMD" {
		c.t.Fatalf("%v needs a shell, which the image doesn't have", test)
	}
	c.until(p.name+" is healthy", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_, err := p.run(ctx, test[1:]...)
		return err == nil
	})
}

// follow runs the commands of the install page.
func (c *composition) follow() {
	c.t.Helper()
	text, err := os.ReadFile("../../docs/operating/install.md")
	if err != nil {
		c.t.Fatal(err)
	}
	ran := 0
	for line := range strings.Lines(string(text)) {
		words, ok := strings.CutPrefix(strings.TrimRight(line, "\n"), "    docker compose -f deploy/compose/compose.yaml ")
		if !ok {
			continue
		}
		ran++
		switch args := strings.Fields(words); args[0] {
		case "up":
			c.pods = c.up()
		case "exec":
			for _, p := range c.pods {
				if p.name == args[1] {
					c.t.Logf("%s:\n%s", words, p.exec(args[2:]...))
				}
			}
		case "down":
			var stops sync.WaitGroup
			for _, p := range c.pods {
				stops.Go(p.stop)
			}
			stops.Wait()
		default:
			c.t.Fatalf("unknown command %q", words)
		}
	}
	if ran < 4 {
		c.t.Errorf("%d commands", ran)
	}
}

// TestCompose starts the compose file with the commands of its page, then
// starts the services again with the certificates and the data of the first
// run, and restarts each node under load.
func TestCompose(t *testing.T) {
	if !inside(t) {
		return
	}
	c := &composition{world: newWorld(t), project: readCompose(t)}
	c.follow()
	certs := filepath.Join(c.dir, "volumes", "certs")
	first, err := os.ReadFile(filepath.Join(certs, "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	pods := c.up()
	if again, err := os.ReadFile(filepath.Join(certs, "ca.crt")); err != nil || string(again) != string(first) {
		t.Errorf("the second start made another authority: %v", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(first)
	own, err := tls.LoadX509KeyPair(filepath.Join(certs, "client.admin.crt"), filepath.Join(certs, "client.admin.key"))
	if err != nil {
		t.Fatal(err)
	}
	l := startLoad(t, counterModule(t), client.Options{TLS: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{own}}}, "n1:7070", "n2:7070", "n3:7070")
	l.noneFailed("start")
	for i, p := range pods {
		p.stop()
		pods[i] = c.start(c.container(p.name), []string{p.name}, nil)
		c.healthy(pods[i])
		c.until("every shard is led", func() bool {
			return strings.Contains(pods[i].exec("hostd", "cluster", "status"), "survives the loss of 1")
		})
	}
	l.noneFailed("restart of each node")
	l.check()
	if n := c.ended.Load(); n != 0 {
		t.Errorf("%d containers ended by themselves", n)
	}
}
