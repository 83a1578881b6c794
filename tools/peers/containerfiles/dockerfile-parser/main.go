// The instructions of a Dockerfile, by BuildKit's parser. Texts come as JSON strings on standard input, one a line, and
// so do answers: each instruction's lines, its text as the parser joins it, and its here-documents.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/parser"
)

type instruction struct {
	Name      string   `json:"name"`
	Text      string   `json:"text"`
	Start     int      `json:"start"`
	End       int      `json:"end"`
	Documents []string `json:"documents"`
}

type answer struct {
	Instructions []instruction `json:"instructions"`
	Error        string        `json:"error,omitempty"`
}

func main() {
	texts, answers := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for texts.More() {
		var text string
		if err := texts.Decode(&text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		if err := answers.Encode(read(text)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
	}
}

func read(text string) answer {
	result, err := parser.Parse(strings.NewReader(text))
	if err != nil {
		return answer{Instructions: []instruction{}, Error: err.Error()}
	}
	found := answer{Instructions: make([]instruction, 0, len(result.AST.Children))}
	for _, node := range result.AST.Children {
		documents := make([]string, 0, len(node.Heredocs))
		for _, document := range node.Heredocs {
			documents = append(documents, document.Content)
		}
		found.Instructions = append(found.Instructions, instruction{
			strings.ToUpper(node.Value), node.Original, node.StartLine, node.EndLine, documents,
		})
	}
	return found
}
