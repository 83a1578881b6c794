// Which paths an ignore file leaves out of a context, by the packages that docker and BuildKit decide it with. Questions
// come as JSON on standard input, one a line, and so do answers; an error is that of reading the file or of a pattern.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
)

type question struct {
	Text  string   `json:"text"`
	Paths []string `json:"paths"`
}

type answer struct {
	Ignored []bool `json:"ignored"`
	Error   string `json:"error,omitempty"`
}

func main() {
	questions, answers := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for questions.More() {
		var asked question
		if err := questions.Decode(&asked); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		if err := answers.Encode(decide(asked)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
	}
}

func decide(asked question) answer {
	patterns, err := ignorefile.ReadAll(strings.NewReader(asked.Text))
	if err != nil {
		return answer{Error: err.Error()}
	}
	matcher, err := patternmatcher.New(patterns)
	if err != nil {
		return answer{Error: err.Error()}
	}
	found := answer{Ignored: make([]bool, len(asked.Paths))}
	for index, path := range asked.Paths {
		if found.Ignored[index], err = matcher.MatchesOrParentMatches(path); err != nil {
			return answer{Error: err.Error()}
		}
	}
	return found
}
