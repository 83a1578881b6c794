// kubelet-managers admits pods with the kubelet's own topology, CPU, memory and device managers.
//
// It reads one case per line from standard input and writes one answer per line: for every step the verdict of the
// admission, the state files of the CPU and memory managers, and the devices of every container. A line that is a step
// goes on with the case before it, so that whoever asks can choose a step by the answers to those before. Polyarch's
// decisions about nodes with NUMA zones are compared with it, and so is the model of these managers in its sandbox.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"
	cadvisor "github.com/google/cadvisor/info/v1"
	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
	"k8s.io/klog/v2"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/memorymanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/utils/cpuset"
)

type machine struct {
	Sockets int             `json:"sockets"`
	Nodes   []cadvisor.Node `json:"nodes"`
	Devices []device        `json:"devices"`
}

// A device of a plugin. Nodes: as the plugin says, null where it says nothing, which is not the same as none.
type device struct {
	Resource string  `json:"resource"`
	ID       string  `json:"id"`
	Nodes    []int64 `json:"nodes"`
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
	Gates           map[string]bool             `json:"gates"`
}

// A step is one of: admit (pod), sum (pod), created (uid, container), over (uid), restart.
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
	// By uid, container and resource.
	Devices  map[string]map[string]map[string][]string `json:"devices"`
	Requests v1.ResourceList                           `json:"requests,omitempty"`
}

// A device plugin. It prefers the lowest ids, so that the same case always goes the same way.
type plugin struct{ resource string }

func (p plugin) API() pluginapi.DevicePluginClient { return client{} }
func (p plugin) Resource() string                  { return p.resource }
func (p plugin) SocketPath() string                { return p.resource }

type client struct{ pluginapi.DevicePluginClient }

func (client) GetDevicePluginOptions(context.Context, *pluginapi.Empty, ...grpc.CallOption) (*pluginapi.DevicePluginOptions, error) {
	return &pluginapi.DevicePluginOptions{GetPreferredAllocationAvailable: true}, nil
}

func (client) GetPreferredAllocation(_ context.Context, asked *pluginapi.PreferredAllocationRequest, _ ...grpc.CallOption) (*pluginapi.PreferredAllocationResponse, error) {
	answer := &pluginapi.PreferredAllocationResponse{}
	for _, request := range asked.ContainerRequests {
		chosen := slices.Clone(request.MustIncludeDeviceIDs)
		available := slices.Clone(request.AvailableDeviceIDs)
		slices.Sort(available)
		for _, id := range available {
			if len(chosen) < int(request.AllocationSize) && !slices.Contains(chosen, id) {
				chosen = append(chosen, id)
			}
		}
		answer.ContainerResponses = append(answer.ContainerResponses, &pluginapi.ContainerPreferredAllocationResponse{DeviceIDs: chosen})
	}
	return answer, nil
}

func (client) Allocate(_ context.Context, asked *pluginapi.AllocateRequest, _ ...grpc.CallOption) (*pluginapi.AllocateResponse, error) {
	answer := &pluginapi.AllocateResponse{}
	for range asked.ContainerRequests {
		answer.ContainerResponses = append(answer.ContainerResponses, &pluginapi.ContainerAllocateResponse{})
	}
	return answer, nil
}

type noStatus struct{}

func (noStatus) GetPodStatus(types.UID) (v1.PodStatus, bool) { return v1.PodStatus{}, false }

// A kubelet, as far as it decides about CPUs, memory and cells.
type kubelet struct {
	machine       *cadvisor.MachineInfo
	configuration configuration
	folder        string
	active        []*v1.Pod
	offered       []device
	cpus          cpumanager.Manager
	memory        memorymanager.Manager
	devices       *devicemanager.ManagerImpl
	topology      topologymanager.Manager
}

func (k *kubelet) socket() string { return filepath.Join(k.folder, "plugins", "kubelet.sock") }

func (k *kubelet) start() error {
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
	if k.cpus, err = newCPUManager(k, reserved, allocatable); err != nil {
		return err
	}
	if k.memory, err = newMemoryManager(k, allocatable, reservations); err != nil {
		return err
	}
	if k.devices, err = newDevices(k); err != nil {
		return err
	}
	k.addHintProvider(k.devices)
	k.addHintProvider(k.cpus)
	k.addHintProvider(k.memory)
	// The CPU manager looks at all pods in the background once at its start. Until that is over it must not tidy up:
	// the sources are not ready then, as in a kubelet that has not yet heard of its pods.
	var isReady atomic.Bool
	looked := make(chan struct{})
	var once sync.Once
	ready := whenReady(isReady.Load)
	pods := func() []*v1.Pod {
		if isReady.Load() {
			return k.active
		}
		once.Do(func() { close(looked) })
		return nil
	}
	if err := k.startCPUs(pods, ready); err != nil {
		return err
	}
	if k.configuration.CPUPolicy != "none" {
		<-looked
	}
	isReady.Store(true)
	if err := k.startMemory(pods, ready); err != nil {
		return err
	}
	if err := k.startDevices(pods, ready); err != nil {
		return err
	}
	return k.registerAll()
}

func (k *kubelet) registerAll() error {
	offered := map[string][]*pluginapi.Device{}
	for _, each := range k.offered {
		made := &pluginapi.Device{ID: each.ID, Health: pluginapi.Healthy}
		if each.Nodes != nil {
			made.Topology = &pluginapi.TopologyInfo{}
			for _, node := range each.Nodes {
				made.Topology.Nodes = append(made.Topology.Nodes, &pluginapi.NUMANode{ID: node})
			}
		}
		offered[each.Resource] = append(offered[each.Resource], made)
	}
	for resource, devices := range offered {
		if err := k.register(resource, devices); err != nil {
			return err
		}
	}
	return nil
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
				k.addContainer(pod, &container, uid+"/"+name)
			}
		}
	}
}

func (k *kubelet) restart() (lifecycle.PodAdmitResult, error) {
	pods := k.active
	k.active = nil
	k.stopDevices()
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

func (k *kubelet) held() map[string]map[string]map[string][]string {
	held := map[string]map[string]map[string][]string{}
	for _, pod := range k.active {
		for _, container := range append(append([]v1.Container{}, pod.Spec.InitContainers...), pod.Spec.Containers...) {
			for resource, instances := range k.devices.GetDevices(string(pod.UID), container.Name) {
				uid := string(pod.UID)
				if held[uid] == nil {
					held[uid] = map[string]map[string][]string{}
				}
				if held[uid][container.Name] == nil {
					held[uid][container.Name] = map[string][]string{}
				}
				for id := range instances {
					held[uid][container.Name][resource] = append(held[uid][container.Name][resource], id)
				}
				slices.Sort(held[uid][container.Name][resource])
			}
		}
	}
	return held
}

// A kubelet in a folder of its own, with the feature gates of the case and nothing else.
func open(given testCase) (*kubelet, error) {
	gates := map[string]bool{
		"CPUManagerPolicyAlphaOptions":      true,
		"CPUManagerPolicyBetaOptions":       true,
		"TopologyManagerPolicyAlphaOptions": true,
		"TopologyManagerPolicyBetaOptions":  true,
	}
	for name, is := range given.Configuration.Gates {
		gates[name] = is
	}
	for name, is := range gates {
		if _, known := utilfeature.DefaultMutableFeatureGate.GetAll()[featuregate.Feature(name)]; known {
			if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(map[string]bool{name: is}); err != nil {
				return nil, err
			}
		}
	}
	folder, err := os.MkdirTemp("", "kubelet-managers-")
	if err != nil {
		return nil, err
	}
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
		offered:       given.Machine.Devices,
	}
	return k, k.start()
}

func (k *kubelet) close() {
	if k.devices != nil {
		k.stopDevices()
	}
	os.RemoveAll(k.folder)
}

func (k *kubelet) do(each step) (outcome, error) {
	result := lifecycle.PodAdmitResult{Admit: true}
	switch each.Do {
	case "admit":
		result = k.admit(each.Pod)
	case "created":
		k.created(each.UID, each.Container)
	case "over":
		k.over(each.UID)
	case "sum":
		// No admission: what kube-scheduler counts of the pod.
		return outcome{Requests: podRequests(each.Pod)}, nil
	case "restart":
		var err error
		if result, err = k.restart(); err != nil {
			// The kubelet does not start with its own state; there is nothing to go on with.
			return outcome{Reason: "CannotStart", Message: err.Error()}, nil
		}
	default:
		return outcome{}, fmt.Errorf("unknown step %q", each.Do)
	}
	return outcome{Reason: result.Reason, Message: result.Message, CPU: k.file("cpu_manager_state"), Memory: k.file("memory_manager_state"), Devices: k.held()}, nil
}

func main() {
	klog.SetLogger(logr.Discard())
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(make([]byte, 1<<20), 1<<26)
	answers := json.NewEncoder(os.Stdout)
	var k *kubelet
	for lines.Scan() {
		answer, err := answer(lines.Bytes(), &k)
		if err == nil {
			err = answers.Encode(answer)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	if k != nil {
		k.close()
	}
}

func answer(line []byte, k **kubelet) (any, error) {
	var given struct {
		testCase
		step
	}
	if err := json.Unmarshal(line, &given); err != nil {
		return nil, err
	}
	if given.Do != "" {
		return (*k).do(given.step)
	}
	if *k != nil {
		(*k).close()
	}
	var err error
	if *k, err = open(given.testCase); err != nil {
		// What a kubelet says that cannot run like this.
		return map[string]string{"error": err.Error()}, nil
	}
	outcomes := []outcome{}
	for _, each := range given.Steps {
		found, err := (*k).do(each)
		if err != nil {
			return nil, err
		}
		outcomes = append(outcomes, found)
		if found.Reason == "CannotStart" {
			break
		}
	}
	return outcomes, nil
}
