// Where kinds have pods, by the Go types that their operators decode them into: the pod specifications, the mappings
// with an affinity or a node selector, the lists of containers and the images of each kind, as JSON, one kind a line.
// A path is the names of fields with dots; "*" is every element of a list or member of a map.
package main

import (
	"encoding/json"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"

	arc "github.com/actions/actions-runner-controller/apis/actions.github.com/v1alpha1"
	rollouts "github.com/argoproj/argo-rollouts/pkg/apis/rollouts/v1alpha1"
	argo "github.com/argoproj/argo-workflows/v3/pkg/apis/workflow/v1alpha1"
	cnpg "github.com/cloudnative-pg/cloudnative-pg/api/v1"
	spark "github.com/kubeflow/spark-operator/v2/api/v1beta2"
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	training "github.com/kubeflow/training-operator/pkg/apis/kubeflow.org/v1"
	otel1 "github.com/open-telemetry/opentelemetry-operator/apis/v1alpha1"
	otel "github.com/open-telemetry/opentelemetry-operator/apis/v1beta1"
	kruise "github.com/openkruise/kruise-api/apps/v1alpha1"
	openshift "github.com/openshift/api/apps/v1"
	olm "github.com/operator-framework/api/pkg/operators/v1alpha1"
	prometheus "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	prometheus1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1alpha1"
	ray "github.com/ray-project/kuberay/ray-operator/apis/ray/v1"
	tekton "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	tekton1beta1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1beta1"
	corev1 "k8s.io/api/core/v1"
	knative "knative.dev/serving/pkg/apis/serving/v1"
	kubevirt "kubevirt.io/api/core/v1"
	kubevirtpool "kubevirt.io/api/pool/v1alpha1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	lws "sigs.k8s.io/lws/api/leaderworkerset/v1"
	volcano "volcano.sh/apis/pkg/apis/batch/v1alpha1"
)

// The kinds by their groups and versions.
var groups = map[string][]any{
	"actions.github.com/v1alpha1":    {arc.AutoscalingRunnerSet{}},
	"apps.kruise.io/v1alpha1":        {kruise.CloneSet{}, kruise.BroadcastJob{}, kruise.SidecarSet{}, kruise.UnitedDeployment{}, kruise.DaemonSet{}, kruise.AdvancedCronJob{}},
	"apps.openshift.io/v1":           {openshift.DeploymentConfig{}},
	"argoproj.io/v1alpha1":           {argo.Workflow{}, argo.WorkflowTemplate{}, argo.ClusterWorkflowTemplate{}, argo.CronWorkflow{}, rollouts.Rollout{}},
	"batch.volcano.sh/v1alpha1":      {volcano.Job{}},
	"jobset.x-k8s.io/v1alpha2":       {jobset.JobSet{}},
	"kubeflow.org/v1":                {training.PyTorchJob{}, training.TFJob{}, training.MPIJob{}, training.XGBoostJob{}, training.PaddleJob{}, training.JAXJob{}},
	"kubevirt.io/v1":                 {kubevirt.VirtualMachine{}, kubevirt.VirtualMachineInstance{}, kubevirt.VirtualMachineInstanceReplicaSet{}},
	"leaderworkerset.x-k8s.io/v1":    {lws.LeaderWorkerSet{}},
	"monitoring.coreos.com/v1":       {prometheus.Prometheus{}, prometheus.Alertmanager{}, prometheus.ThanosRuler{}},
	"monitoring.coreos.com/v1alpha1": {prometheus1.PrometheusAgent{}},
	"opentelemetry.io/v1alpha1":      {otel1.Instrumentation{}, otel1.OpAMPBridge{}, otel1.TargetAllocator{}},
	"opentelemetry.io/v1beta1":       {otel.OpenTelemetryCollector{}},
	"operators.coreos.com/v1alpha1":  {olm.ClusterServiceVersion{}, olm.CatalogSource{}},
	"pool.kubevirt.io/v1alpha1":      {kubevirtpool.VirtualMachinePool{}},
	"postgresql.cnpg.io/v1":          {cnpg.Cluster{}, cnpg.Pooler{}},
	"ray.io/v1":                      {ray.RayCluster{}, ray.RayJob{}, ray.RayService{}},
	"serving.knative.dev/v1":         {knative.Service{}, knative.Configuration{}, knative.Revision{}},
	"sparkoperator.k8s.io/v1beta2":   {spark.SparkApplication{}, spark.ScheduledSparkApplication{}},
	"tekton.dev/v1":                  {tekton.Task{}, tekton.TaskRun{}, tekton.Pipeline{}, tekton.PipelineRun{}},
	"tekton.dev/v1beta1":             {tekton1beta1.Task{}, tekton1beta1.TaskRun{}, tekton1beta1.Pipeline{}, tekton1beta1.PipelineRun{}, tekton1beta1.StepAction{}},
	"trainer.kubeflow.org/v1alpha1":  {trainer.TrainJob{}, trainer.TrainingRuntime{}, trainer.ClusterTrainingRuntime{}},
}

var (
	pod       = reflect.TypeFor[corev1.PodSpec]()
	container = reflect.TypeFor[corev1.Container]()
	affinity  = reflect.TypeFor[corev1.Affinity]()
	image     = regexp.MustCompile(`(?:^|[a-z])image$|Image(?:Name)?$|^imageName$`)
)

type kind struct {
	Group      string   `json:"group"`
	Version    string   `json:"version"`
	Kind       string   `json:"kind"`
	Pods       []string `json:"pods"`
	Affinities []string `json:"affinities"`
	Selectors  []string `json:"selectors"`
	Containers []string `json:"containers"`
	Images     []string `json:"images"`
}

func main() {
	answers := json.NewEncoder(os.Stdout)
	versions := make([]string, 0, len(groups))
	for version := range groups {
		versions = append(versions, version)
	}
	slices.Sort(versions)
	for _, version := range versions {
		for _, object := range groups[version] {
			group, number, _ := strings.Cut(version, "/")
			found := kind{Group: group, Version: number, Kind: reflect.TypeOf(object).Name()}
			found.walk(reflect.TypeOf(object), nil, nil)
			for _, paths := range []*[]string{&found.Pods, &found.Affinities, &found.Selectors, &found.Containers, &found.Images} {
				slices.Sort(*paths)
				*paths = append([]string{}, slices.Compact(*paths)...)
			}
			if err := answers.Encode(found); err != nil {
				panic(err)
			}
		}
	}
}

func path(parts []string) string { return strings.Join(parts, ".") }

// walk adds what a type has below a path; within are the types around it, none of which is entered twice.
func (k *kind) walk(t reflect.Type, parts []string, within []reflect.Type) {
	switch t.Kind() {
	case reflect.Pointer:
		k.walk(t.Elem(), parts, within)
	case reflect.Slice, reflect.Array:
		if isContainer(t.Elem()) {
			k.Containers = append(k.Containers, path(parts))
		} else {
			k.walk(t.Elem(), append(slices.Clone(parts), "*"), within)
		}
	case reflect.Map:
		k.walk(t.Elem(), append(slices.Clone(parts), "*"), within)
	case reflect.Struct:
		if t == pod {
			k.Pods = append(k.Pods, path(parts))
		} else if isContainer(t) {
			k.Containers = append(k.Containers, path(parts))
		} else if (t.PkgPath() != corev1PkgPath || t.Name() == "PodTemplateSpec") && !slices.Contains(within, t) {
			k.fields(t, parts, append(slices.Clone(within), t))
		}
	}
}

var corev1PkgPath = pod.PkgPath()

func (k *kind) fields(t reflect.Type, parts []string, within []reflect.Type) {
	for index := range t.NumField() {
		field := t.Field(index)
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "-" || (name == "" && !field.Anonymous && !strings.Contains(options, "inline")) {
			continue
		}
		if name == "" {
			if inner := elem(field.Type); inner == pod {
				k.Pods = append(k.Pods, path(parts))
			} else if inner.Kind() == reflect.Struct && inner.PkgPath() != corev1PkgPath {
				k.fields(inner, parts, within)
			}
			continue
		}
		if len(parts) == 0 && name != "spec" {
			continue
		}
		here := append(slices.Clone(parts), name)
		inner := elem(field.Type)
		switch {
		case inner == affinity:
			k.Affinities = append(k.Affinities, path(parts))
		case name == "nodeSelector" && inner.Kind() == reflect.Map:
			k.Selectors = append(k.Selectors, path(parts))
		case inner.Kind() == reflect.String && image.MatchString(name):
			k.Images = append(k.Images, path(here))
		default:
			k.walk(field.Type, here, within)
		}
	}
}

func elem(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

// isContainer says whether a type is a container, has all of one, or has the fields of one.
func isContainer(t reflect.Type) bool {
	t = elem(t)
	if t.Kind() != reflect.Struct {
		return false
	}
	names := map[string]bool{}
	for index := range t.NumField() {
		field := t.Field(index)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if field.Anonymous && elem(field.Type) == container {
			return true
		}
		names[name] = true
	}
	return names["image"] && names["name"] && names["env"] && names["resources"] || names["image"] && names["command"] && names["env"] && names["volumeMounts"]
}
