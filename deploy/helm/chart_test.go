package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

const (
	chartDir  = "hostd"
	plainFile = "../kubernetes/hostd.yaml"
)

// certificate is the part of cert-manager's Certificate (cert-manager.io/v1)
// that the chart sets. Its own Go module has hundreds of dependencies.
type certificate struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   map[string]any    `json:"metadata"`
	Spec       certificateValues `json:"spec"`
}

type certificateValues struct {
	SecretName string `json:"secretName"`
	IssuerRef  struct {
		Name  string `json:"name"`
		Kind  string `json:"kind"`
		Group string `json:"group"`
	} `json:"issuerRef"`
	PrivateKey struct {
		Algorithm      string `json:"algorithm"`
		Size           int    `json:"size"`
		RotationPolicy string `json:"rotationPolicy"`
	} `json:"privateKey"`
	Usages      []string `json:"usages"`
	URIs        []string `json:"uris"`
	DNSNames    []string `json:"dnsNames"`
	IPAddresses []string `json:"ipAddresses"`
}

// objects are the decoded objects of a rendered chart.
type objects struct {
	sets         []*appsv1.StatefulSet
	services     []*corev1.Service
	configs      []*corev1.ConfigMap
	accounts     []*corev1.ServiceAccount
	budgets      []*policyv1.PodDisruptionBudget
	policies     []*networkingv1.NetworkPolicy
	monitors     []*monitoringv1.ServiceMonitor
	certificates []*certificate
}

// decode decodes every object strictly. Fields that the object's type does not
// have, duplicate fields, and objects of kinds that are not listed are errors.
func decode(files map[string]string) (*objects, error) {
	o := &objects{}
	for name, text := range files {
		if name == notes {
			continue
		}
		for _, document := range documents(text) {
			if err := o.add(document); err != nil {
				return nil, fmt.Errorf("%s: %w\n%s", name, err, document)
			}
		}
	}
	return o, nil
}

func (o *objects) add(document string) error {
	var head struct{ APIVersion, Kind string }
	if err := yaml.Unmarshal([]byte(document), &head); err != nil {
		return err
	}
	switch head.APIVersion + " " + head.Kind {
	case "apps/v1 StatefulSet":
		return strictly(document, &o.sets)
	case "v1 Service":
		return strictly(document, &o.services)
	case "v1 ConfigMap":
		return strictly(document, &o.configs)
	case "v1 ServiceAccount":
		return strictly(document, &o.accounts)
	case "policy/v1 PodDisruptionBudget":
		return strictly(document, &o.budgets)
	case "networking.k8s.io/v1 NetworkPolicy":
		return strictly(document, &o.policies)
	case "monitoring.coreos.com/v1 ServiceMonitor":
		return strictly(document, &o.monitors)
	case "cert-manager.io/v1 Certificate":
		return strictly(document, &o.certificates)
	}
	return fmt.Errorf("unexpected object %s %s", head.APIVersion, head.Kind)
}

func strictly[T any](document string, to *[]*T) error {
	object := new(T)
	if err := yaml.UnmarshalStrict([]byte(document), object); err != nil {
		return err
	}
	*to = append(*to, object)
	return nil
}

// set returns a nested value, such as set("tls.enabled", true).
func set(pairs ...any) map[string]any {
	out := map[string]any{}
	for i := 0; i < len(pairs); i += 2 {
		at, names := out, strings.Split(pairs[i].(string), ".")
		for _, name := range names[:len(names)-1] {
			if at[name] == nil {
				at[name] = map[string]any{}
			}
			at = at[name].(map[string]any)
		}
		at[names[len(names)-1]] = pairs[i+1]
	}
	return out
}

func rendered(t *testing.T, values map[string]any) *objects {
	t.Helper()
	files, err := render(chartDir, values)
	if err != nil {
		t.Fatal(err)
	}
	o, err := decode(files)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// combinations are the values with which all checks of rendered objects run.
var combinations = map[string]map[string]any{
	"defaults":   nil,
	"tls":        set("tls.enabled", true, "tls.issuerRef.name", "ca", "tls.dnsNames", []any{"hostd.example.com"}),
	"ownSecrets": set("tls.enabled", true, "config.auth", "required", "drain.tokenSecret.name", "drain"),
	"allowTLS":   set("tls.enabled", true, "tls.mode", "allow"),
	"monitoring": set("serviceMonitor.enabled", true, "serviceMonitor.labels.release", "prometheus", "networkPolicy.monitoring", []any{map[string]any{"namespaceSelector": map[string]any{}}}),
	"oneNode":    set("replicas", 1, "bootstrapExpect", 1, "antiAffinity", "", "zone.spread", "", "zone.fieldPath", "", "networkPolicy.enabled", false),
	"everything": set("replicas", 5, "bootstrapExpect", 5, "antiAffinity", "required", "zone.spread", "DoNotSchedule", "storage.className", "fast", "imagePullSecrets", []any{"registry"},
		"podAnnotations.a", "b", "podLabels.c", "d", "nodeSelector.disk", "ssd", "tolerations", []any{map[string]any{"key": "db", "operator": "Exists"}}, "priorityClassName", "high",
		"service.type", "LoadBalancer", "service.annotations.e", "f", "extraEnv", []any{map[string]any{"name": "GODEBUG", "value": "x=1"}},
		"extraVolumes", []any{map[string]any{"name": "tokens", "secret": map[string]any{"secretName": "tokens"}}},
		"extraVolumeMounts", []any{map[string]any{"name": "tokens", "mountPath": "/etc/hostd/tokens", "readOnly": true}}, "fullnameOverride", "db", "image.tag", "9.8.7", "drain.enabled", false),
}

func TestLintFindsNothing(t *testing.T) {
	for name, values := range combinations {
		linter := lint.All(chartDir, values, namespace, true)
		for _, m := range linter.Messages {
			if m.Severity > support.InfoSev {
				t.Errorf("%s: %s", name, m)
			}
		}
	}
}

func TestRenderedObjectsHaveKnownFields(t *testing.T) {
	for name, values := range combinations {
		t.Run(name, func(t *testing.T) {
			o := rendered(t, values)
			if len(o.sets) != 1 || len(o.services) != 2 || len(o.configs) != 1 || len(o.accounts) != 1 || len(o.budgets) != 1 {
				t.Errorf("%+v", o)
			}
			checkReferences(t, o)
		})
	}
	if _, err := decode(map[string]string{"x.yaml": "apiVersion: v1\nkind: Service\nspec:\n  cluserIP: None\n"}); err == nil {
		t.Error("a misspelt field is accepted")
	}
}

// checkReferences checks that objects refer to objects, ports and volumes that
// exist.
func checkReferences(t *testing.T, o *objects) {
	t.Helper()
	s := o.sets[0]
	labels := s.Spec.Template.Labels
	selects := func(what string, selector map[string]string) {
		for key, value := range selector {
			if labels[key] != value {
				t.Errorf("%s selects %s=%s, the pods have %q", what, key, value, labels[key])
			}
		}
	}
	selects("the set", s.Spec.Selector.MatchLabels)
	selects("the budget", o.budgets[0].Spec.Selector.MatchLabels)
	c := &s.Spec.Template.Spec.Containers[0]
	ports := map[string]int32{}
	for _, p := range c.Ports {
		ports[p.Name] = p.ContainerPort
	}
	headless := false
	for _, service := range o.services {
		selects(service.Name, service.Spec.Selector)
		for _, p := range service.Spec.Ports {
			if ports[p.TargetPort.StrVal] != p.Port {
				t.Errorf("%s: port %+v", service.Name, p)
			}
		}
		if service.Name == s.Spec.ServiceName {
			headless = service.Spec.ClusterIP == corev1.ClusterIPNone && service.Spec.PublishNotReadyAddresses
		}
	}
	if !headless {
		t.Errorf("no headless service %s", s.Spec.ServiceName)
	}
	for _, p := range []*corev1.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
		if ports[p.HTTPGet.Port.StrVal] != 7072 {
			t.Errorf("probe %+v", p)
		}
	}
	// A node must not be killed because it has no quorum.
	if c.StartupProbe.HTTPGet.Path != "/livez" || c.LivenessProbe.HTTPGet.Path != "/livez" || c.ReadinessProbe.HTTPGet.Path != "/readyz" {
		t.Error("the probes ask the wrong paths")
	}
	volumes := []string{}
	for _, v := range s.Spec.Template.Spec.Volumes {
		volumes = append(volumes, v.Name)
	}
	for _, v := range s.Spec.VolumeClaimTemplates {
		volumes = append(volumes, v.Name)
	}
	for _, m := range c.VolumeMounts {
		if !slices.Contains(volumes, m.Name) {
			t.Errorf("no volume %s", m.Name)
		}
	}
	if len(volumes) != len(c.VolumeMounts) {
		t.Errorf("volumes %v, %d mounts", volumes, len(c.VolumeMounts))
	}
}

func TestPodsAreHardened(t *testing.T) {
	for name, values := range combinations {
		spec := rendered(t, values).sets[0].Spec.Template.Spec
		c := spec.Containers[0]
		p, s := spec.SecurityContext, c.SecurityContext
		if !*p.RunAsNonRoot || *p.RunAsUser == 0 || p.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault ||
			*s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || !reflect.DeepEqual(s.Capabilities.Drop, []corev1.Capability{"ALL"}) {
			t.Errorf("%s: %+v %+v", name, p, s)
		}
		if *spec.AutomountServiceAccountToken || *spec.EnableServiceLinks || c.Resources.Limits.Memory().IsZero() || c.Resources.Requests.Cpu().IsZero() {
			t.Errorf("%s: %+v", name, spec)
		}
	}
}

// The drain and the stop after it must fit into the termination grace period of
// Kubernetes.
func TestDrainFitsIntoTheGracePeriod(t *testing.T) {
	p := newImage(t).container(t, rendered(t, nil), 0, nil)
	if p.drainTime() <= 0 || p.grace < p.drainTime()+15 {
		t.Errorf("the drain takes up to %d s, the stop 15 s, and the grace period is %d s", p.drainTime(), p.grace)
	}
	if _, err := render(chartDir, set("terminationGracePeriodSeconds", 30)); err == nil {
		t.Error("a grace period that is shorter than the drain is accepted")
	}
}

func TestInvalidValuesAreRejected(t *testing.T) {
	for want, values := range map[string]map[string]any{
		"replica":                 set("replica", 3),
		"replicas":                set("replicas", 0),
		"tls.certificates":        set("tls.enabled", true, "tls.certificates", 2),
		"config.listen":           set("config.listen", ":80"),
		"config.node-id":          set("config.node-id", "x"),
		"spread":                  set("zone.spread", "Sometimes"),
		"bootstrapExpect":         set("bootstrapExpect", "three"),
		"podDisruptionBudget":     set("podDisruptionBudget.maxUnavailable", 2),
		"the configuration":       set("config.no such key", 1),
		"storage":                 set("storage.size", "much"),
		"fullnameOverride":        set("clusterDomain", strings.Repeat("long", 25)),
		"networkPolicy.something": set("networkPolicy.something", 1),
	} {
		if _, err := render(chartDir, values); err == nil {
			t.Errorf("%s is accepted", want)
		}
	}
}

// Scaling must not change the pods, because that would restart all of them.
func TestScalingLeavesThePodsAlone(t *testing.T) {
	three, five := rendered(t, nil).sets[0].Spec, rendered(t, set("replicas", 5)).sets[0].Spec
	if *five.Replicas != 5 || !reflect.DeepEqual(three.Template, five.Template) {
		t.Error("another number of replicas changes the template of the pods")
	}
}

func TestPlainFileIsTheRenderedChart(t *testing.T) {
	files, err := render(chartDir, nil)
	if err != nil {
		t.Fatal(err)
	}
	committed, err := os.ReadFile(plainFile)
	if err != nil {
		t.Fatal(err)
	}
	if want := plain(files); string(committed) != want {
		t.Errorf("%s is not the rendered chart: run make kubernetes", plainFile)
	}
	if o, err := decode(map[string]string{"hostd.yaml": string(committed)}); err != nil || len(o.sets) != 1 {
		t.Errorf("%v", err)
	}
}

// A node must accept the chart's configuration, for each combination of values.
func TestNodeAcceptsTheConfiguration(t *testing.T) {
	image := newImage(t)
	for name, values := range combinations {
		t.Run(name, func(t *testing.T) {
			o := rendered(t, values)
			dir := t.TempDir()
			p := image.container(t, o, 0, nil)
			file := filepath.Join(dir, "hostd.yaml")
			if err := os.WriteFile(file, []byte(o.configs[0].Data["hostd.yaml"]), 0o644); err != nil {
				t.Fatal(err)
			}
			args := append(slices.Clone(p.argv[1:]), "--check", "--config", file, "--data-dir", filepath.Join(dir, "data"), "--listen", ":0", "--peer-listen", ":0", "--health-listen", ":0")
			cmd := exec.Command(filepath.Join(image.root, p.argv[0]), args...)
			cmd.Env = p.env
			out, _ := cmd.CombinedOutput()
			for line := range strings.Lines(string(out)) {
				subject, result, _ := strings.Cut(strings.TrimSpace(line), ": ")
				if subject == "hostd" {
					continue // the line is a summary of the lines above
				}
				file := strings.HasSuffix(subject, "-file") || strings.HasPrefix(subject, "tls") || strings.HasPrefix(subject, "peer")
				if result != "ok" && !(file && strings.Contains(result, "no such file")) {
					t.Errorf("%s", line)
				}
			}
			if !bytes.Contains(out, []byte("environment: ok")) {
				t.Errorf("%s", out)
			}
		})
	}
}

// A certificate must identify exactly one node, and be valid for the names that
// clients use.
func TestCertificatesNameTheirNodes(t *testing.T) {
	o := rendered(t, combinations["tls"])
	if len(o.certificates) != 5 {
		t.Fatalf("%d certificates", len(o.certificates))
	}
	slices.SortFunc(o.certificates, func(a, b *certificate) int { return strings.Compare(a.Spec.SecretName, b.Spec.SecretName) })
	for i, c := range o.certificates {
		node := fmt.Sprintf("hostd-%d", i)
		if c.Spec.SecretName != node+"-tls" || !slices.Equal(c.Spec.URIs, []string{"spiffe://hostd/hostd/node/" + node}) {
			t.Errorf("%+v", c)
		}
		for _, name := range []string{node + ".hostd-nodes.default.svc.cluster.local", "hostd.default.svc", "localhost", "hostd.example.com"} {
			if !slices.Contains(c.Spec.DNSNames, name) {
				t.Errorf("%s: no name %s in %v", node, name, c.Spec.DNSNames)
			}
		}
	}
	if o := rendered(t, combinations["ownSecrets"]); len(o.certificates) != 0 {
		t.Error("certificates without an issuer")
	}
}

func TestSchemaListsTheValues(t *testing.T) {
	type object struct {
		Properties           map[string]*object
		AdditionalProperties any
	}
	var schema object
	text, err := os.ReadFile(filepath.Join(chartDir, "values.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	var values map[string]any
	text, err = os.ReadFile(filepath.Join(chartDir, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(text, &values); err != nil {
		t.Fatal(err)
	}
	var compare func(at string, o *object, values map[string]any)
	compare = func(at string, o *object, values map[string]any) {
		for name, property := range o.Properties {
			value, ok := values[name]
			if !ok && name != "global" {
				t.Errorf("%s%s: only in the schema", at, name)
			}
			if below, ok := value.(map[string]any); ok && len(property.Properties) > 0 && at+name != "resources" {
				compare(at+name+".", property, below)
			}
		}
	}
	compare("", &schema, values)
}
