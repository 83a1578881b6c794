// kubelet-managers admits pods with the kubelet's own CPU, memory and topology managers.
//
// It reads one case per line from standard input and writes one answer per line: for every step the verdict of the
// admission, and the state files of both managers. The model of these managers in polyarch's sandbox is compared with it.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	cadvisor "github.com/google/cadvisor/info/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/cm/containermap"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/memorymanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/config"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/utils/cpuset"
)

type machine struct {
	Sockets int             `json:"sockets"`
	Nodes   []cadvisor.Node `json:"nodes"`
}

type configuration struct {
	TopologyPolicy  string                      `json:"topologyPolicy"`
	TopologyScope   string                      `json:"topologyScope"`
	TopologyOptions map[string]string           `json:"topologyOptions"`
	CPUPolicy       string                      `json:"cpuPolicy"`
	CPUOptions      map[string]string           `json:"cpuOptions"`
	ReservedCPUs    string                      `json:"reservedCPUs"`
	MemoryPolicy    string                      `json:"memoryPolicy"`
	ReservedMemory  map[int32]map[string]string `json:"reservedMemory"`
}

// A step is one of: admit (pod), created (uid, container), over (uid), restart.
type step struct {
	Do        string  `json:"do"`
	Pod       *v1.Pod `json:"pod"`
	UID       string  `json:"uid"`
	Container string  `json:"container"`
}

type testCase struct {
	Machine       machine       `json:"machine"`
	Configuration configuration `json:"configuration"`
	Steps         []step        `json:"steps"`
}

type outcome struct {
	Reason  string          `json:"reason"`
	Message string          `json:"message"`
	CPU     json.RawMessage `json:"cpu"`
	Memory  json.RawMessage `json:"memory"`
}

type noStatus struct{}

func (noStatus) GetPodStatus(types.UID) (v1.PodStatus, bool) { return v1.PodStatus{}, false }

// A kubelet, as far as it decides about CPUs, memory and cells.
type kubelet struct {
	machine       *cadvisor.MachineInfo
	configuration configuration
	folder        string
	active        []*v1.Pod
	cpus          cpumanager.Manager
	memory        memorymanager.Manager
	topology      topologymanager.Manager
}

func (k *kubelet) start() error {
	logger := klog.Background()
	var err error
	k.topology, err = topologymanager.NewManager(k.machine.Topology, k.configuration.TopologyPolicy, k.configuration.TopologyScope, k.configuration.TopologyOptions)
	if err != nil {
		return err
	}
	reserved, err := cpuset.Parse(k.configuration.ReservedCPUs)
	if err != nil {
		return err
	}
	total := resource.Quantity{}
	var reservations []kubeletconfig.MemoryReservation
	for cell, limits := range k.configuration.ReservedMemory {
		reservation := kubeletconfig.MemoryReservation{NumaNode: cell, Limits: v1.ResourceList{}}
		for name, text := range limits {
			quantity := resource.MustParse(text)
			reservation.Limits[v1.ResourceName(name)] = quantity
			total.Add(quantity)
		}
		reservations = append(reservations, reservation)
	}
	allocatable := v1.ResourceList{v1.ResourceCPU: *resource.NewQuantity(int64(reserved.Size()), resource.DecimalSI), v1.ResourceMemory: total}
	k.cpus, err = cpumanager.NewManager(logger, k.configuration.CPUPolicy, k.configuration.CPUOptions, 24*time.Hour, k.machine, reserved, allocatable, k.folder, k.topology)
	if err != nil {
		return err
	}
	k.memory, err = memorymanager.NewManager(logger, k.configuration.MemoryPolicy, k.machine, allocatable, reservations, k.folder, k.topology)
	if err != nil {
		return err
	}
	k.topology.AddHintProvider(logger, k.cpus)
	k.topology.AddHintProvider(logger, k.memory)
	// The CPU manager looks at all pods in the background once at its start. Until that is over it must not tidy up:
	// the sources are not ready then, as in a kubelet that has not yet heard of its pods.
	var isReady atomic.Bool
	looked := make(chan struct{})
	var once sync.Once
	ready := config.NewSourcesReady(func(sets.Set[string]) bool { return isReady.Load() })
	pods := func() []*v1.Pod {
		if isReady.Load() {
			return k.active
		}
		once.Do(func() { close(looked) })
		return nil
	}
	if err := k.cpus.Start(context.Background(), pods, ready, noStatus{}, nil, containermap.NewContainerMap()); err != nil {
		return err
	}
	if k.configuration.CPUPolicy != "none" {
		<-looked
	}
	isReady.Store(true)
	return k.memory.Start(context.Background(), pods, ready, noStatus{}, nil, containermap.NewContainerMap())
}

func (k *kubelet) admit(pod *v1.Pod) lifecycle.PodAdmitResult {
	k.active = append(k.active, pod)
	result := k.topology.Admit(&lifecycle.PodAdmitAttributes{Pod: pod})
	if !result.Admit {
		k.over(string(pod.UID))
	}
	return result
}

func (k *kubelet) over(uid string) {
	var left []*v1.Pod
	for _, pod := range k.active {
		if string(pod.UID) != uid {
			left = append(left, pod)
		}
	}
	k.active = left
}

func (k *kubelet) created(uid, name string) {
	for _, pod := range k.active {
		if string(pod.UID) != uid {
			continue
		}
		for _, container := range append(append([]v1.Container{}, pod.Spec.InitContainers...), pod.Spec.Containers...) {
			if container.Name == name {
				k.memory.AddContainer(klog.Background(), pod, &container, uid+"/"+name)
			}
		}
	}
}

func (k *kubelet) restart() (lifecycle.PodAdmitResult, error) {
	pods := k.active
	k.active = nil
	if err := k.start(); err != nil {
		return lifecycle.PodAdmitResult{}, err
	}
	k.active = pods
	for _, pod := range pods {
		if result := k.topology.Admit(&lifecycle.PodAdmitAttributes{Pod: pod}); !result.Admit {
			return result, nil
		}
	}
	return lifecycle.PodAdmitResult{Admit: true}, nil
}

func (k *kubelet) file(name string) json.RawMessage {
	content, err := os.ReadFile(filepath.Join(k.folder, name))
	if err != nil {
		return nil
	}
	return content
}

func run(given testCase) ([]outcome, error) {
	folder, err := os.MkdirTemp("", "kubelet-managers-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	count := 0
	for _, node := range given.Machine.Nodes {
		for _, core := range node.Cores {
			count += len(core.Threads)
		}
	}
	k := &kubelet{
		machine:       &cadvisor.MachineInfo{NumCores: count, NumSockets: given.Machine.Sockets, Topology: given.Machine.Nodes},
		configuration: given.Configuration,
		folder:        folder,
	}
	if err := k.start(); err != nil {
		return nil, err
	}
	var outcomes []outcome
	for _, each := range given.Steps {
		result := lifecycle.PodAdmitResult{Admit: true}
		switch each.Do {
		case "admit":
			result = k.admit(each.Pod)
		case "created":
			k.created(each.UID, each.Container)
		case "over":
			k.over(each.UID)
		case "restart":
			if result, err = k.restart(); err != nil {
				// The kubelet does not start with its own state; there is nothing to go on with.
				return append(outcomes, outcome{Reason: "CannotStart", Message: err.Error()}), nil
			}
		default:
			return nil, fmt.Errorf("unknown step %q", each.Do)
		}
		outcomes = append(outcomes, outcome{result.Reason, result.Message, k.file("cpu_manager_state"), k.file("memory_manager_state")})
	}
	return outcomes, nil
}

func main() {
	klog.SetOutput(os.Stderr)
	klog.LogToStderr(false)
	klog.SetOutput(discard{})
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(make([]byte, 1<<20), 1<<26)
	answers := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var given testCase
		if err := json.Unmarshal(lines.Bytes(), &given); err != nil {
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
