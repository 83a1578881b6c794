// numa-plugin asks the scheduler plugin NodeResourceTopologyMatch for its verdicts.
//
// It reads one case per line from standard input (nodes, their NodeResourceTopologies, steps) and writes one line with
// an answer per step: what the plugin's own Filter and Score say of every node, with its own pessimistic cache in
// between, or what they cost. polyarch's mode compat is compared with it.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"syscall"
	"unsafe"

	"github.com/go-logr/logr"
	topologyv1alpha2 "github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	podlisterv1 "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"sigs.k8s.io/scheduler-plugins/apis/config"
	"sigs.k8s.io/scheduler-plugins/pkg/noderesourcetopology"
	nrtcache "sigs.k8s.io/scheduler-plugins/pkg/noderesourcetopology/cache"
	"sigs.k8s.io/scheduler-plugins/pkg/noderesourcetopology/podprovider"
)

const ours = "topo-aware-scheduler"

type topology = topologyv1alpha2.NodeResourceTopology

type testCase struct {
	Strategy   string           `json:"strategy"`
	Weights    map[string]int64 `json:"weights"`
	Informer   string           `json:"informer"`
	Detection  string           `json:"detection"`
	Nodes      []*v1.Node       `json:"nodes"`
	Topologies []topology       `json:"topologies"`
	Steps      []step           `json:"steps"`
}

// A step is one of: decide (pod), measure (pod, rounds), reserve (pod, node), unreserve (pod, node), event (pod: seen on
// the watch), topology (the API server has it now), pods (what the API server lists), resync.
type step struct {
	Do       string    `json:"do"`
	Node     string    `json:"node"`
	Pod      *v1.Pod   `json:"pod"`
	Pods     []*v1.Pod `json:"pods"`
	Topology *topology `json:"topology"`
	Rounds   int       `json:"rounds"`
}

type verdict struct {
	Node    string `json:"node"`
	Fits    bool   `json:"fits"`
	Message string `json:"message"`
	Score   int64  `json:"score"`
	// Panics are answers, too: "filter" or "score", and what was said.
	Panic string `json:"panic,omitempty"`
}

type outcome struct {
	Verdicts []verdict `json:"verdicts,omitempty"`
	// Nanoseconds of CPU per node and pod.
	FilterCPU float64 `json:"filterCPU,omitempty"`
	ScoreCPU  float64 `json:"scoreCPU,omitempty"`
	Fitting   int     `json:"fitting,omitempty"`
}

// The API server, as far as the plugin asks it.
type server struct {
	ctrlclient.WithWatch
	topologies map[string]*topology
	watcher    *watch.FakeWatcher
}

func (s *server) List(_ context.Context, list ctrlclient.ObjectList, _ ...ctrlclient.ListOption) error {
	items := &list.(*topologyv1alpha2.NodeResourceTopologyList).Items
	for _, each := range s.topologies {
		*items = append(*items, *each.DeepCopy())
	}
	return nil
}

func (s *server) Get(_ context.Context, key ctrlclient.ObjectKey, object ctrlclient.Object, _ ...ctrlclient.GetOption) error {
	found, ok := s.topologies[key.Name]
	if !ok {
		return apierrors.NewNotFound(schema.GroupResource{Group: "topology.node.k8s.io", Resource: "noderesourcetopologies"}, key.Name)
	}
	found.DeepCopyInto(object.(*topology))
	return nil
}

func (s *server) Watch(context.Context, ctrlclient.ObjectList, ...ctrlclient.ListOption) (watch.Interface, error) {
	return s.watcher, nil
}

// The plugin's New asks for nothing else, and reaches nobody before its first request, which it never makes: its cache
// is replaced by one that asks the server above.
type handle struct{ framework.Handle }

func (handle) KubeConfig() *rest.Config { return &rest.Config{Host: "http://127.0.0.1:1"} }

type world struct {
	server   *server
	plugin   *noderesourcetopology.TopologyMatch
	cache    *nrtcache.OverReserve
	pods     cache.Indexer
	nodes    []*framework.NodeInfo
	ctx      context.Context
	strategy string
}

func newWorld(ctx context.Context, given testCase) (*world, error) {
	w := &world{
		ctx:      klog.NewContext(ctx, logr.Discard()),
		server:   &server{topologies: map[string]*topology{}, watcher: watch.NewFake()},
		pods:     cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}),
		strategy: given.Strategy,
	}
	for at := range given.Topologies {
		w.server.topologies[given.Topologies[at].Name] = &given.Topologies[at]
	}
	for _, node := range given.Nodes {
		info := framework.NewNodeInfo()
		info.SetNode(node)
		w.nodes = append(w.nodes, info)
	}
	relevant := podprovider.IsPodRelevantDedicated
	if given.Informer == "Shared" {
		relevant = podprovider.IsPodRelevantShared
	}
	nrtcache.CleanRegisteredSchedulerProfileNames()
	nrtcache.RegisterSchedulerProfileName(logr.Discard(), ours)
	if given.Detection == "Aggressive" {
		nrtcache.TrackAllForeignPods()
	} else {
		nrtcache.TrackOnlyForeignPodsWithExclusiveResources()
	}
	method, scope := config.CacheResyncAutodetect, config.CacheResyncScopeAll
	settings := &config.NodeResourceTopologyCache{ResyncMethod: &method, ResyncScope: &scope}
	var err error
	w.cache, err = nrtcache.NewOverReserve(w.ctx, logr.Discard(), settings, w.server, podlisterv1.NewPodLister(w.pods), relevant)
	if err != nil {
		return nil, err
	}
	args := &config.NodeResourceTopologyMatchArgs{
		ScoringStrategy: config.ScoringStrategy{Type: config.ScoringStrategyType(given.Strategy)},
	}
	for name, weight := range given.Weights {
		args.ScoringStrategy.Resources = append(args.ScoringStrategy.Resources, schedulerconfig.ResourceSpec{Name: name, Weight: weight})
	}
	plugin, err := noderesourcetopology.New(w.ctx, args, handle{})
	if err != nil {
		return nil, err
	}
	w.plugin = plugin.(*noderesourcetopology.TopologyMatch)
	field := reflect.ValueOf(w.plugin).Elem().FieldByName("nrtCache")
	reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr())).Elem().Set(reflect.ValueOf(w.cache))
	return w, nil
}

func (w *world) filter(pod *v1.Pod, node *framework.NodeInfo, said *verdict) {
	defer func() {
		if reason := recover(); reason != nil {
			said.Panic = fmt.Sprintf("filter: %v", reason)
		}
	}()
	status := w.plugin.Filter(w.ctx, nil, pod, node)
	said.Fits, said.Message = status.IsSuccess(), status.Message()
}

func (w *world) score(pod *v1.Pod, node *framework.NodeInfo, said *verdict) {
	defer func() {
		if reason := recover(); reason != nil {
			said.Panic = fmt.Sprintf("score: %v", reason)
		}
	}()
	said.Score, _ = w.plugin.Score(w.ctx, nil, pod, node)
}

func (w *world) decide(pod *v1.Pod) []verdict {
	var all []verdict
	for _, node := range w.nodes {
		said := verdict{Node: node.Node().Name}
		w.filter(pod, node, &said)
		if said.Panic == "" {
			w.score(pod, node, &said)
		}
		all = append(all, said)
	}
	return all
}

func (w *world) measure(pod *v1.Pod, rounds int) outcome {
	said := verdict{}
	result := outcome{}
	calls := float64(rounds * len(w.nodes))
	begin := cpu()
	for range rounds {
		result.Fitting = 0
		for _, node := range w.nodes {
			w.filter(pod, node, &said)
			if said.Fits {
				result.Fitting++
			}
		}
	}
	between := cpu()
	for range rounds {
		for _, node := range w.nodes {
			w.score(pod, node, &said)
		}
	}
	result.FilterCPU, result.ScoreCPU = float64(between-begin)/calls, float64(cpu()-between)/calls
	return result
}

// Nanoseconds that this process has used, the collection of garbage included.
func cpu() int64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return usage.Utime.Nano() + usage.Stime.Nano()
}

func (w *world) take(each step) (outcome, error) {
	switch each.Do {
	case "decide":
		return outcome{Verdicts: w.decide(each.Pod)}, nil
	case "measure":
		return w.measure(each.Pod, each.Rounds), nil
	case "reserve":
		w.cache.ReserveNodeResources(each.Node, each.Pod)
	case "unreserve":
		w.cache.UnreserveNodeResources(each.Node, each.Pod)
	case "event":
		if nrtcache.IsForeignPod(each.Pod) {
			w.cache.NodeHasForeignPods(each.Pod.Spec.NodeName, each.Pod)
		}
	case "topology":
		w.server.topologies[each.Topology.Name] = each.Topology
		w.server.watcher.Modify(each.Topology)
		// Once this one is received, the one before has been dealt with.
		w.server.watcher.Action(watch.Bookmark, each.Topology)
	case "pods":
		var pods []interface{}
		for _, pod := range each.Pods {
			pods = append(pods, pod)
		}
		return outcome{}, w.pods.Replace(pods, "")
	case "resync":
		w.cache.Resync()
	default:
		return outcome{}, fmt.Errorf("unknown step %q", each.Do)
	}
	return outcome{}, nil
}

func run(given testCase) ([]outcome, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	w, err := newWorld(ctx, given)
	if err != nil {
		return nil, err
	}
	outcomes := []outcome{}
	for _, each := range given.Steps {
		said, err := w.take(each)
		if err != nil {
			return nil, err
		}
		outcomes = append(outcomes, said)
	}
	return outcomes, nil
}

func main() {
	klog.LogToStderr(false)
	klog.SetOutput(discard{})
	lines := bufio.NewReaderSize(os.Stdin, 1<<20)
	cases := json.NewDecoder(lines)
	answers := json.NewEncoder(os.Stdout)
	for cases.More() {
		var given testCase
		if err := cases.Decode(&given); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		outcomes, err := run(given)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		if err := answers.Encode(outcomes); err != nil {
			os.Exit(1)
		}
	}
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }
