// scheduler-filters says which nodes take a pod, by the API server's own RuntimeClass admission and kube-scheduler's own
// filters for nodes.
//
// It reads one cluster per line from standard input and writes one answer per line: for every pod the names of the nodes
// that its filters let through, or why the API server refuses the pod. A pod that names its node meets no scheduler: the
// rules of its kubelet count. polyarch's judgement of pods and nodes is compared with it.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	api "k8s.io/kubernetes/pkg/apis/core"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodeaffinity"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodename"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodeunschedulable"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/tainttoleration"
	"k8s.io/kubernetes/plugin/pkg/admission/runtimeclass"
)

type testCase struct {
	Nodes          []*v1.Node             `json:"nodes"`
	Pods           []*v1.Pod              `json:"pods"`
	RuntimeClasses []*nodev1.RuntimeClass `json:"runtimeClasses"`
}

type answer struct {
	Nodes   []string `json:"nodes"`
	Refused string   `json:"refused"`
}

func main() {
	klog.SetOutput(os.Stderr)
	klog.LogToStderr(false)
	filters := filters()
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 64<<20)
	out := json.NewEncoder(os.Stdout)
	for in.Scan() {
		var given testCase
		check(json.Unmarshal(in.Bytes(), &given))
		check(out.Encode(answers(given, filters)))
	}
	check(in.Err())
}

func filters() []fwk.FilterPlugin {
	ctx := context.Background()
	features := feature.Features{EnableTaintTolerationComparisonOperators: true}
	var made []fwk.FilterPlugin
	for _, plugin := range []func() (fwk.Plugin, error){
		func() (fwk.Plugin, error) { return nodename.New(ctx, nil, nil, features) },
		func() (fwk.Plugin, error) { return nodeunschedulable.New(ctx, nil, nil, features) },
		func() (fwk.Plugin, error) { return nodeaffinity.New(ctx, &config.NodeAffinityArgs{}, nil, features) },
		func() (fwk.Plugin, error) { return tainttoleration.New(ctx, nil, nil, features) },
	} {
		found, err := plugin()
		check(err)
		made = append(made, found.(fwk.FilterPlugin))
	}
	return made
}

func answers(given testCase, filters []fwk.FilterPlugin) []answer {
	var objects []runtime.Object
	for _, class := range given.RuntimeClasses {
		objects = append(objects, class)
	}
	client := fake.NewSimpleClientset(objects...)
	plugin := runtimeclass.NewRuntimeClass()
	plugin.SetExternalKubeClientSet(client)
	plugin.SetExternalKubeInformerFactory(informers.NewSharedInformerFactory(client, 0))
	var found []answer
	for _, pod := range given.Pods {
		admitted, err := admitted(plugin, pod)
		if err != nil {
			found = append(found, answer{Nodes: []string{}, Refused: err.Error()})
			continue
		}
		names := []string{}
		for _, node := range given.Nodes {
			if takes(admitted, node, filters) {
				names = append(names, node.Name)
			}
		}
		found = append(found, answer{Nodes: names})
	}
	return found
}

func admitted(plugin *runtimeclass.RuntimeClass, pod *v1.Pod) (*v1.Pod, error) {
	var internal api.Pod
	check(corev1.Convert_v1_Pod_To_core_Pod(pod.DeepCopy(), &internal, nil))
	attributes := admission.NewAttributesRecord(
		&internal, nil, api.Kind("Pod").WithVersion("version"), pod.Namespace, pod.Name,
		api.Resource("pods").WithVersion("version"), "", admission.Create, &metav1.CreateOptions{}, false, nil,
	)
	if err := plugin.Admit(context.Background(), attributes, nil); err != nil {
		return nil, err
	}
	var made v1.Pod
	check(corev1.Convert_core_Pod_To_v1_Pod(&internal, &made, nil))
	return &made, nil
}

func takes(pod *v1.Pod, node *v1.Node, filters []fwk.FilterPlugin) bool {
	info := framework.NewNodeInfo()
	info.SetNode(node)
	if pod.Spec.NodeName != "" {
		return kubeletTakes(pod, node, info)
	}
	for _, filter := range filters {
		if !filter.Filter(context.Background(), framework.NewCycleState(), pod, info).IsSuccess() {
			return false
		}
	}
	return true
}

// As lifecycle.generalFilter, which is not exported and looks at resources as well.
func kubeletTakes(pod *v1.Pod, node *v1.Node, info *framework.NodeInfo) bool {
	if !nodename.Fits(pod, info) {
		return false
	}
	plugin, err := nodeaffinity.New(context.Background(), &config.NodeAffinityArgs{}, nil, feature.Features{})
	check(err)
	state := framework.NewCycleState()
	if !plugin.(fwk.FilterPlugin).Filter(context.Background(), state, pod, info).IsSuccess() {
		return false
	}
	evicts := func(taint *v1.Taint) bool { return taint.Effect == v1.TaintEffectNoExecute }
	_, untolerated := corev1helpers.FindMatchingUntoleratedTaint(
		klog.Background(), node.Spec.Taints, pod.Spec.Tolerations, evicts, true,
	)
	return !untolerated
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
