package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// buildsVariable is an environment variable with a directory of programs that
// are already built, for the continuous test run.
const buildsVariable = "HOSTD_TEST_BUILDS"

// image is the file system of the container image: the program and nothing
// else, as deploy/release makes it.
type image struct{ root string }

// programs holds the directory in which the test process builds the program
// once.
var programs = struct {
	once  sync.Once
	image image
	err   error
}{}

// newImage returns the image, built from the checkout.
func newImage(t testing.TB) image {
	t.Helper()
	programs.once.Do(func() {
		if root := os.Getenv(imageVariable); root != "" {
			programs.image = image{root}
			return
		}
		var root string
		if root, programs.err = os.MkdirTemp("", "hostd-image-*"); programs.err != nil {
			return
		}
		programs.image = image{root}
		programs.err = programs.image.build()
	})
	if programs.err != nil {
		t.Fatal(programs.err)
	}
	return programs.image
}

func (i image) build() error {
	program := i.program()
	if err := os.MkdirAll(filepath.Dir(program), 0o755); err != nil {
		return err
	}
	if built := filepath.Join(os.Getenv(buildsVariable), "hostd"); os.Getenv(buildsVariable) != "" {
		if content, err := os.ReadFile(built); err == nil {
			return os.WriteFile(program, content, 0o755)
		}
	}
	return goBuild(program, "./cmd/hostd", "CGO_ENABLED=0")
}

// goBuild builds a package of the main module.
func goBuild(to, pkg string, env ...string) error {
	args := []string{"build", "-buildvcs=false", "-o", to}
	if strings.HasSuffix(to, ".wasm") {
		args = append(args, "-buildmode=c-shared")
	}
	cmd := exec.Command("go", append(args, pkg)...)
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", pkg, err, out)
	}
	return nil
}

func (i image) program() string { return filepath.Join(i.root, "usr/bin/hostd") }

// removeImage removes the image that this process has built.
func removeImage() {
	if programs.image.root != "" && os.Getenv(imageVariable) == "" {
		os.RemoveAll(programs.image.root)
	}
}

// mount is a directory of the host in a container.
type mount struct {
	source, target string
	readOnly       bool
}

// container describes a container that a kubelet or a container engine runs.
type container struct {
	name      string
	argv, env []string
	mounts    []mount
	uid, gid  int
	startup   *corev1.Probe
	liveness  *corev1.Probe
	readiness *corev1.Probe
	ports     map[string]int32
	preStop   []string
	grace     int // grace period in seconds
}

// zoneLabel is the label that Kubernetes copies from a machine to its pods.
const zoneLabel = "topology.kubernetes.io/zone"

// volumes returns the directory of a volume of a pod. The function is nil if
// volumes do not matter.
type volumes func(pod string, v corev1.Volume) string

// container returns the container of a pod of the stateful set, by ordinal, as
// a kubelet would run it.
func (i image) container(t testing.TB, o *objects, ordinal int, at volumes) *container {
	t.Helper()
	s := o.sets[0]
	spec := s.Spec.Template.Spec
	c := spec.Containers[0]
	out := &container{
		name: fmt.Sprintf("%s-%d", s.Name, ordinal), uid: int(*spec.SecurityContext.RunAsUser), gid: int(*spec.SecurityContext.RunAsGroup),
		startup: c.StartupProbe, liveness: c.LivenessProbe, readiness: c.ReadinessProbe, ports: map[string]int32{}, grace: int(*spec.TerminationGracePeriodSeconds),
	}
	// The entry point and the environment of the image.
	values := map[string]string{"HOSTD_DATA_DIR": "/var/lib/hostd", "PATH": "/usr/bin"}
	for _, e := range c.Env {
		value := e.Value
		switch {
		case e.ValueFrom == nil:
		case e.ValueFrom.FieldRef.FieldPath == "metadata.name":
			value = out.name
		case e.ValueFrom.FieldRef.FieldPath == "metadata.labels['"+zoneLabel+"']":
			value = fmt.Sprintf("zone-%d", ordinal%3)
		default:
			t.Fatalf("%s: field %s", e.Name, e.ValueFrom.FieldRef.FieldPath)
		}
		values[e.Name] = expand(value, values)
	}
	for name, value := range values {
		out.env = append(out.env, name+"="+value)
	}
	out.argv = []string{"/usr/bin/hostd"}
	for _, a := range c.Args {
		out.argv = append(out.argv, expand(a, values))
	}
	if c.Lifecycle != nil {
		// Kubernetes does not expand variables in hooks.
		out.preStop = c.Lifecycle.PreStop.Exec.Command
	}
	for _, p := range c.Ports {
		out.ports[p.Name] = p.ContainerPort
	}
	if at == nil {
		return out
	}
	all := spec.Volumes
	for _, v := range s.Spec.VolumeClaimTemplates {
		all = append(all, corev1.Volume{Name: v.Name})
	}
	for _, m := range c.VolumeMounts {
		for _, v := range all {
			if v.Name == m.Name {
				out.mounts = append(out.mounts, mount{at(out.name, v), m.MountPath, m.ReadOnly})
			}
		}
	}
	return out
}

var reference = regexp.MustCompile(`\$\([A-Z_]+\)`)

// expand replaces $(NAME) like Kubernetes, which leaves unknown variables
// unchanged.
func expand(text string, values map[string]string) string {
	return reference.ReplaceAllStringFunc(text, func(r string) string {
		if value, ok := values[r[2:len(r)-1]]; ok {
			return value
		}
		return r
	})
}

// drainTime returns the time limit of the drain before a stop in seconds, and 0
// if there is none.
func (c *container) drainTime() int {
	for i, a := range c.preStop {
		if a == "--timeout" {
			d, err := time.ParseDuration(c.preStop[i+1])
			if err == nil {
				return int(d.Seconds())
			}
		}
	}
	return 0
}

// variable returns a variable of the container's environment.
func (c *container) variable(name string) string {
	for _, e := range c.env {
		if value, ok := strings.CutPrefix(e, name+"="); ok {
			return value
		}
	}
	return ""
}

// portOf returns the port of a probe.
func (c *container) portOf(p *corev1.Probe) string {
	return strconv.Itoa(int(c.ports[p.HTTPGet.Port.StrVal]))
}
