package main

import (
	"context"
	"time"
	_ "unsafe" // for linkname

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/klog/v2"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/cm/containermap"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/memorymanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/config"
	"k8s.io/utils/cpuset"

	cadvisor "github.com/google/cadvisor/info/v1"
)

// The functions of the kubelet whose parameters differ between Kubernetes 1.30 and 1.36.

// The exported constructor of the device manager fixes the path of its socket; this one takes it.
//
//go:linkname newDeviceManager k8s.io/kubernetes/pkg/kubelet/cm/devicemanager.newManagerImpl
func newDeviceManager(logger klog.Logger, socket string, topology []cadvisor.Node, store topologymanager.Store) (*devicemanager.ManagerImpl, error)

func newCPUManager(k *kubelet, reserved cpuset.CPUSet, allocatable v1.ResourceList) (cpumanager.Manager, error) {
	return cpumanager.NewManager(klog.Background(), k.configuration.CPUPolicy, k.configuration.CPUOptions, 24*time.Hour, k.machine, reserved, allocatable, k.folder, k.topology)
}

func newMemoryManager(k *kubelet, allocatable v1.ResourceList, reserved []kubeletconfig.MemoryReservation) (memorymanager.Manager, error) {
	return memorymanager.NewManager(klog.Background(), k.configuration.MemoryPolicy, k.machine, allocatable, reserved, k.folder, k.topology)
}

func newDevices(k *kubelet) (*devicemanager.ManagerImpl, error) {
	return newDeviceManager(klog.Background(), k.socket(), k.machine.Topology, k.topology)
}

func (k *kubelet) addHintProvider(provider topologymanager.HintProvider) {
	k.topology.AddHintProvider(klog.Background(), provider)
}

func (k *kubelet) startCPUs(pods func() []*v1.Pod, ready config.SourcesReady) error {
	return k.cpus.Start(context.Background(), pods, ready, noStatus{}, nil, containermap.NewContainerMap())
}

func (k *kubelet) startMemory(pods func() []*v1.Pod, ready config.SourcesReady) error {
	return k.memory.Start(context.Background(), pods, ready, noStatus{}, nil, containermap.NewContainerMap())
}

func (k *kubelet) startDevices(pods func() []*v1.Pod, ready config.SourcesReady) error {
	return k.devices.Start(klog.Background(), pods, ready, containermap.NewContainerMap(), sets.New[string]())
}

func whenReady(is func() bool) config.SourcesReady {
	return config.NewSourcesReady(func(sets.Set[string]) bool { return is() })
}

func (k *kubelet) stopDevices() {
	_ = k.devices.Stop(klog.Background())
}

func (k *kubelet) addContainer(pod *v1.Pod, container *v1.Container, id string) {
	k.memory.AddContainer(klog.Background(), pod, container, id)
}

func (k *kubelet) register(resource string, devices []*pluginapi.Device) error {
	if err := k.devices.PluginConnected(context.Background(), resource, plugin{resource}); err != nil {
		return err
	}
	k.devices.PluginListAndWatchReceiver(klog.Background(), resource, &pluginapi.ListAndWatchResponse{Devices: devices})
	return nil
}

func podRequests(pod *v1.Pod) v1.ResourceList {
	return resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{UseStatusResources: true, InPlacePodLevelResourcesVerticalScalingEnabled: true})
}
