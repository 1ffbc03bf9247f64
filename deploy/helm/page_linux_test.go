package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"helm.sh/helm/v3/pkg/strvals"
)

const page = "../../docs/operating/kubernetes.md"

// commandsOf returns the commands in a section of the page. Loops of the shell
// are unrolled.
func commandsOf(t *testing.T, section string) []string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "\n## "+section+"\n")
	if !found {
		t.Fatalf("%s has no section %q", page, section)
	}
	rest, _, _ = strings.Cut(rest, "\n## ")
	var out, body []string
	var values []string
	for line := range strings.Lines(rest) {
		line, ok := strings.CutPrefix(strings.TrimRight(line, "\n"), "    ")
		switch {
		case !ok:
		case strings.HasPrefix(line, "for n in "):
			values = strings.Fields(strings.TrimSuffix(strings.TrimPrefix(line, "for n in "), "; do"))
		case line == "done":
			for _, value := range values {
				for _, b := range body {
					out = append(out, strings.ReplaceAll(b, "$n", value))
				}
			}
			values, body = nil, nil
		case values != nil:
			body = append(body, line)
		default:
			out = append(out, line)
		}
	}
	if len(out) == 0 {
		t.Fatalf("%s: section %q has no commands", page, section)
	}
	return out
}

// A test runs the commands of every section that has commands.
func TestSectionsWithCommandsAreFollowed(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	sources := ""
	for _, name := range []string{"pods_linux_test.go"} {
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		sources += string(source)
	}
	for section := range strings.SplitSeq(string(text), "\n## ") {
		title, body, _ := strings.Cut(section, "\n")
		if strings.Contains(body, "\n    ") && !strings.Contains(sources, `follow("`+title+`")`) {
			t.Errorf("no test follows the section %q", title)
		}
	}
}

func TestPageListsTheValues(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	want, err := describe(filepath.Join(chartDir, "values.yaml"), string(text))
	if err != nil {
		t.Fatal(err)
	}
	if string(text) != want {
		t.Errorf("%s does not list the chart's values: run make kubernetes", page)
	}
}

// statefulSet runs the pods of a chart, and the commands of its page.
type statefulSet struct {
	*world
	// given are the values of the release, and base the values that the test adds.
	given, base map[string]any
	objects     *objects
	secrets     map[string]map[string]string
	lost        map[string]bool // volumes that end with their pod
	pods        []*pod
}

// newStatefulSet returns a set without pods. Short tests have fewer shards than
// the default.
func newStatefulSet(t *testing.T) *statefulSet {
	s := &statefulSet{world: newWorld(t), secrets: map[string]map[string]string{}, lost: map[string]bool{}, base: set("config.shards", 32)}
	if *full {
		s.base = map[string]any{}
	}
	return s
}

// follow runs the commands of a section of the page.
func (s *statefulSet) follow(section string) {
	s.t.Helper()
	for _, line := range commandsOf(s.t, section) {
		s.t.Logf("%s: %s", section, line)
		s.do(line)
	}
}

// do runs one command of the page.
func (s *statefulSet) do(line string) {
	s.t.Helper()
	words := strings.Fields(line)
	switch two := words[0] + " " + words[1]; two {
	case "helm install", "helm upgrade":
		s.release(words[1:])
	case "helm uninstall":
		s.uninstall()
	case "kubectl apply": // the file is the rendered chart, see TestPlainFileIsTheRenderedChart
		if words[3] != "deploy/kubernetes/hostd.yaml" {
			s.t.Fatal(line)
		}
	case "kubectl rollout":
		s.awaitReady(s.pods...)
	case "kubectl exec":
		if words[3] != "--" {
			s.t.Fatal(line)
		}
		s.t.Logf("%s", s.pod(words[2]).exec(words[4:]...))
	case "kubectl create":
		s.createSecret(words[4], words[5:])
	case "kubectl delete":
		s.delete(words[2], words[3:])
	case "kubectl drain": // the machine to drain runs the second pod
		s.replace(1)
	case "kubectl uncordon", "kubectl get":
	case "hostd cert":
		cmd := exec.Command(s.image.program(), words[1:]...)
		cmd.Dir = s.dir
		if out, err := cmd.CombinedOutput(); err != nil {
			s.t.Fatalf("%s: %v\n%s", line, err, out)
		}
	default:
		s.t.Fatalf("the page has a command that this test does not know: %s", line)
	}
}

func (s *statefulSet) pod(name string) *pod {
	s.t.Helper()
	for _, p := range s.pods {
		if p.name == name {
			return p
		}
	}
	s.t.Fatalf("no pod %s", name)
	return nil
}

// release installs or upgrades the release, as the controller of the set does.
func (s *statefulSet) release(words []string) {
	s.t.Helper()
	if words[1] != release || words[2] != "deploy/helm/hostd" {
		s.t.Fatal(words)
	}
	values, args := map[string]any{}, words[3:]
	if len(args) > 0 && args[0] == "--reuse-values" {
		values, args = s.given, args[1:]
	}
	if values == nil {
		values = map[string]any{}
	}
	for ; len(args) > 1; args = args[2:] {
		if args[0] != "--set" {
			s.t.Fatal(words)
		}
		if err := strvals.ParseInto(args[1], values); err != nil {
			s.t.Fatal(err)
		}
	}
	if s.objects != nil && words[0] == "install" {
		s.t.Fatal("the release exists")
	}
	s.given = values
	all := map[string]any{}
	for key, value := range s.base {
		all[key] = value
	}
	for key, value := range values {
		all[key] = value
	}
	before := s.objects
	s.objects = rendered(s.t, all)
	if len(s.objects.certificates) > 0 {
		s.objects = before // cert-manager would create the secrets
		return
	}
	if before != nil && !reflect.DeepEqual(before.sets[0].Spec.Template, s.objects.sets[0].Spec.Template) {
		s.roll()
	}
	s.scale(int(*s.objects.sets[0].Spec.Replicas))
}

// uninstall stops all pods at once.
func (s *statefulSet) uninstall() {
	var stops sync.WaitGroup
	for _, p := range s.pods {
		p.hookMayFail = true
		stops.Go(p.stop)
	}
	stops.Wait()
	s.pods, s.objects = nil, nil
}

func (s *statefulSet) createSecret(name string, files []string) {
	s.t.Helper()
	content := map[string]string{}
	for _, f := range files {
		key, path, _ := strings.Cut(strings.TrimPrefix(f, "--from-file="), "=")
		text, err := os.ReadFile(filepath.Join(s.dir, path))
		if err != nil {
			s.t.Fatal(err)
		}
		content[key] = string(text)
	}
	s.secrets[name] = content
}

// delete deletes pods or claims. A claim that a pod uses is deleted when the pod
// ends.
func (s *statefulSet) delete(kind string, names []string) {
	s.t.Helper()
	for _, name := range names {
		switch {
		case strings.HasPrefix(name, "--"):
		case kind == "pvc":
			s.lost[strings.TrimPrefix(name, "data-")] = true
			s.removeLost()
		case kind == "pod":
			for i, p := range s.pods {
				if p.name == name {
					s.replace(i)
				}
			}
		default:
			s.t.Fatal(kind)
		}
	}
}

// removeLost removes the deleted volumes that no pod uses.
func (s *statefulSet) removeLost() {
	s.t.Helper()
	for name := range s.lost {
		s.mu.Lock()
		used := s.running[name] != nil
		s.mu.Unlock()
		if !used {
			delete(s.lost, name)
			if err := os.RemoveAll(filepath.Join(s.dir, "volumes", name, "data")); err != nil {
				s.t.Fatal(err)
			}
		}
	}
}
